"""What every figure does with its words and its files."""

from pathlib import Path

import matplotlib

plain_text = matplotlib.rc_context({"text.parse_math": False})
"""Decorates a function that draws: names and titles are the user's, and a dollar sign in them begins no formula."""


def prepare(path: str | Path) -> tuple[Path, Path]:
    """Where a figure and its numbers go; makes their folder.

    Args:
        path: the PNG file.

    Returns:
        The PNG file, and the CSV file beside it, which has the same stem.

    Raises:
        ValueError: the name does not end in ``.png``.

    Example:
        >>> import tempfile
        >>> [file.name for file in prepare(Path(tempfile.mkdtemp()) / "attention.png")]
        ['attention.png', 'attention.csv']
    """
    path = Path(path)
    if path.suffix.lower() != ".png":
        raise ValueError(f"path is {str(path)!r}, expected a file whose name ends in .png")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path, path.with_suffix(".csv")
