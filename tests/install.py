"""Install what the tests need into the current environment.

    python tests/install.py

The `test` extra, and beside it packages that only carry model files: they are installed without their dependencies, which the
tests do not use (some would bring gigabytes).
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODELS = ["rapidocr-onnxruntime==1.4.4", "rapidocr==3.10.0", "silero-vad==6.2.3"]


def pip(*args: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *args], check=True, cwd=ROOT
    )


if __name__ == "__main__":
    pip("-e", ".[test]")
    pip("--no-deps", "--ignore-requires-python", *MODELS)
