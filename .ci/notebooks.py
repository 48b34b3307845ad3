"""Runs the notebooks and checks that each .ipynb holds the cells of the .py file beside it.

    python .ci/notebooks.py            run every notebook in a fresh kernel; the files stay as they are
    python .ci/notebooks.py --write    also write every .ipynb anew from its .py file, with the outputs of this run

The .py file is the one to edit. What is written holds no times and no versions, so that a second run changes no more
than the outputs do.
"""

import sys
import time
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from traitlets.config import Config

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
SECONDS = 120  # after which a cell hangs
BYTES = 400_000  # what a notebook with its outputs may take


def sources(notebook: nbformat.NotebookNode) -> list[tuple[str, str]]:
    """Kind and text of every cell."""
    return [(cell.cell_type, cell.source) for cell in notebook.cells]


def run(path: Path, write: bool) -> None:
    """Checks the pair, runs it, and writes it if asked to.

    Args:
        path: the .py file.
        write: whether to write the .ipynb in place of comparing it.

    Raises:
        ValueError: the two files differ, the outputs are too large, or something was written to the standard error,
            which names places on this machine.
        CellExecutionError: a cell failed.
    """
    notebook, stored = jupytext.read(path), path.with_suffix(".ipynb")
    if not write:
        if not stored.is_file():
            raise ValueError(f"there is no {stored.name}; write it with: python .ci/notebooks.py --write")
        if sources(nbformat.read(stored, as_version=4)) != sources(notebook):
            raise ValueError(
                f"{stored.name} has other cells than {path.name}; write it with: python .ci/notebooks.py --write"
            )
    start = time.perf_counter()
    config = Config(KernelManager={"transport": "ipc"})  # without it the kernel warns of its open ports
    NotebookClient(notebook, timeout=SECONDS, record_timing=False, coalesce_streams=True, config=config).execute()
    print(f"{path.name}: {len(notebook.cells)} cells in {time.perf_counter() - start:.0f} s")
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        outputs = cell.get("outputs", [])
        if write and any(output.get("name") == "stderr" for output in outputs):
            raise ValueError(f"cell {number} of {path.name} writes to the standard error: {outputs}")
    notebook.metadata.pop("language_info", None)  # it names the version of Python
    text = nbformat.writes(notebook)
    if len(text) > BYTES:
        raise ValueError(f"{stored.name} would have {len(text):,} bytes, expected at most {BYTES:,}")
    if write:
        nbformat.validate(notebook)
        stored.write_text(text + "\n", encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Runs all notebooks; the exit code is 1 after an error."""
    if arguments not in ([], ["--write"]):
        print(__doc__, file=sys.stderr)
        return 2
    scripts = sorted(FOLDER.glob("*.py"))
    lone = sorted({path.stem for path in FOLDER.glob("*.ipynb")} - {path.stem for path in scripts})
    try:
        if lone or not scripts:
            raise ValueError(f"in {FOLDER.name}/ there is no .py file for {', '.join(lone) or 'any notebook'}")
        for path in scripts:
            run(path, write=bool(arguments))
    except (ValueError, CellExecutionError) as error:
        print(f"notebooks: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
