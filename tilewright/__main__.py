"""`python -m tilewright` is the `tilewright` command."""

from tilewright.cli.main import main

raise SystemExit(main())
