"""The pages that are written by commands are current."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize(
    ("script", "check"),
    [
        ("encodings.py", "--check"),
        ("timm_models.py", "--names"),
        pytest.param("timm_models.py", "--check", marks=pytest.mark.slow),
    ],
)
def test_pages_are_current(script, check):
    command = [sys.executable, str(DOCS / script), check]
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(DOCS.parent / "src")}
    )
    assert result.stdout == "current\n", result.stdout + result.stderr
    assert result.returncode == 0
