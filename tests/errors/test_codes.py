"""Every error code is on its page and named by a test; the page is up to date."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CODE = re.compile(r"TW\d{4}")


def codes_of(folder):
    return {c for path in (ROOT / folder).rglob("*.py") for c in CODE.findall(path.read_text(encoding="utf-8"))}


def test_the_page_is_up_to_date():
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "make_errors.py"), "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("code", sorted(codes_of("tilewright")))
def test_every_code_is_raised_by_a_test(code):
    assert code in codes_of("tests"), f"no test names {code}"
