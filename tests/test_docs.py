"""The pages that are written by commands are current."""

import os
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def test_the_page_of_encodings_is_current():
    command = [sys.executable, str(DOCS / "encodings.py"), "--check"]
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(DOCS.parent / "src")}
    )
    assert result.stdout == "current\n", result.stdout + result.stderr
    assert result.returncode == 0
