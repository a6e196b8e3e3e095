"""Settings of all tests: a kernel cache of the session's own, unless the environment names one."""

import os
import tempfile

if "TILEWRIGHT_CACHE_DIR" not in os.environ:
    _folder = tempfile.TemporaryDirectory(prefix="tilewright-tests-")
    os.environ["TILEWRIGHT_CACHE_DIR"] = _folder.name
