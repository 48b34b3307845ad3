"""Writes files in one step, so that neither a kill nor a full disk leaves half of one."""

import io
import os
from pathlib import Path
from typing import Any

from relbias._extras import extra

with extra("train"):
    import torch
    from lightning.fabric.plugins import TorchCheckpointIO


def write_atomic(path: Path, data: bytes) -> None:
    """Writes a file beside its place and then moves it there; what was there before stays until then.

    Args:
        path: the file, in a folder that exists.
        data: its content.

    Raises:
        OSError: it cannot be written; its filename is the path, and the file is what it was before.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "a.txt"
        >>> write_atomic(path, b"one")
        >>> path.read_text(), [file.name for file in path.parent.iterdir()]
        ('one', ['a.txt'])
    """
    part = path.with_name(f".{path.name}.part")  # the same name each time: what a kill leaves is written over
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error


class AtomicCheckpointIO(TorchCheckpointIO):
    """Lightning's way to save a checkpoint, with :func:`write_atomic`.

    Lightning itself writes to the temporary folder and moves the file from there, which is a copy where that is another
    disk.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Saves a checkpoint.

        Args:
            checkpoint: what to save.
            path: the file; its folder is made.
            storage_options: not supported.

        Raises:
            OSError: it cannot be written; an earlier checkpoint there is what it was before.
        """
        if storage_options is not None:
            raise TypeError(f"storage_options is {storage_options!r}, and a local file takes none")
        buffer = io.BytesIO()  # torch.save into a file hides the reason of a failure
        torch.save(checkpoint, buffer)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_atomic(Path(path), buffer.getvalue())
