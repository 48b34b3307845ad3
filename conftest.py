"""What holds for all tests, those in docstrings included."""

import sys

import pytest


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    """Forgets the encodings that a test defines, so that no test sees those of another."""
    base = sys.modules.get("relbias.encodings.base")
    if base is not None:
        monkeypatch.setattr(base, "_classes", dict(base._classes))
