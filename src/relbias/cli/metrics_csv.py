"""metrics.csv: a row for each time that something was logged."""

import csv
import io
import os
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from relbias._extras import extra
from relbias.cli.atomic import write_atomic

with extra("train"):
    from lightning.pytorch.loggers import Logger
    from lightning.pytorch.utilities import rank_zero_only


class MetricsCSV(Logger):
    """Appends to a file that can be there already; Lightning's CSVLogger would delete it.

    Args:
        path: the file; its columns are sorted by name, and it is written anew in one step where a column is added.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "metrics.csv"
        >>> logger = MetricsCSV(path)
        >>> logger.log_metrics({"val/loss": 0.5}, step=3)
        >>> logger.save()
        >>> path.read_text().splitlines()
        ['step,val/loss', '3,0.5']
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self._rows: list[dict[str, Any]] = []

    @property
    def name(self) -> str:
        """Nothing: the folder is the run's own."""
        return ""

    @property
    def version(self) -> str:
        """Nothing: the folder is the run's own."""
        return ""

    @property
    def save_dir(self) -> str:
        """The folder that the file lies in."""
        return str(self.path.parent)

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Does nothing: config.yaml holds them."""

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Adds a row, which :meth:`save` writes; a Trainer calls that each time.

        Args:
            metrics: the columns.
            step: the number of optimizer steps before the one that it is about.
        """
        self._rows.append({**{name: float(value) for name, value in metrics.items() if name != "epoch"}, "step": step})
        if "epoch" in metrics:
            self._rows[-1]["epoch"] = int(metrics["epoch"])

    @rank_zero_only
    def save(self) -> None:
        """Writes the rows that are not in the file yet.

        Raises:
            OSError: they cannot be written; the file is what it was before, and the rows are kept for another attempt.
        """
        if not self._rows:
            return
        columns = _columns(self.path)
        new = sorted({name for row in self._rows for name in row} | set(columns))
        if new == columns:
            _append(self.path, _text(columns, self._rows))
        else:
            rows = [*read_rows(self.path), *self._rows]
            write_atomic(self.path, (_text(new, [dict(zip(new, new, strict=True))]) + _text(new, rows)).encode())
        self._rows = []

    def finalize(self, status: str) -> None:
        """Writes the rows that are left; after a failure, which comes first in the message, as far as that works."""
        with suppress(OSError) if status == "failed" else nullcontext():
            self.save()


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of the file as text, none where there is no file; a last row that a kill cut off is left out.

    Raises:
        ValueError: the file is damaged.
    """
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8", errors="replace")
    rows = list(csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1])))
    bad = [None in row or None in row.values() or not row.get("step", "").isdecimal() for row in rows]
    if any(bad) or (text and "step" not in _columns(path)):
        raise ValueError(
            f"{path} is damaged: line {bad.index(True) + 2 if any(bad) else 1} has not the columns of this file or no "
            "step; repair it, or move the file away to go on without the earlier rows"
        )
    return rows


def cut(path: Path, step: int) -> None:
    """Leaves out the rows of a step and later, which a continued training writes again.

    Args:
        path: the file; nothing happens where there is none.
        step: the number of optimizer steps taken.

    Raises:
        ValueError: the file is damaged.
        OSError: the file cannot be written.
    """
    if path.is_file():
        columns = _columns(path)
        rows = [row for row in read_rows(path) if int(row["step"]) < step]
        header = _text(columns, [dict(zip(columns, columns, strict=True))])
        write_atomic(path, (header + _text(columns, rows)).encode())


def _columns(path: Path) -> list[str]:
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        return next(csv.reader(file), [])


def _text(columns: list[str], rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    csv.DictWriter(text, columns, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _append(path: Path, text: str) -> None:
    before = path.stat().st_size
    try:
        with path.open("ab", buffering=0) as file:
            data = text.encode()
            while data:
                data = data[file.write(data) :]
    except OSError as error:
        os.truncate(path, before)
        raise OSError(error.errno, error.strerror, str(path)) from error
