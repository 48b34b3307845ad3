"""The text of a file or of the files in a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from torch import Tensor

from relbias import resources
from relbias.data.parts import split_documents, split_text
from relbias.data.text import Text
from relbias.data.vocabulary import Bytes, Characters


class TextFiles(Text):
    """The characters or bytes of a text file, or of the files in a folder and the folders in it.

    Three files or more are parted as whole files, by :func:`~relbias.data.parts.split_documents`; one file, or two one
    after the other, as :func:`~relbias.data.parts.split_text` does: the first 90 % for training, then 5 % for
    validation and 5 % for the test. Files are read as UTF-8. With characters the vocabulary is that of the training
    part, and a character that it lacks is token 0; bytes are tokens 0 to 255. Packed, a file is a document, and of a
    text that is one file each part is.

    Args:
        path: the file or the folder.
        tokens: what a token is.
        length: as in :class:`~relbias.data.text.Text`, as are the others.
        batch_size: see there.
        test_lengths: see there.
        packed: see there.
        num_workers: see there.
        fingerprint: see there.
        pattern: which files of a folder, with the wildcards * and ?.

    Raises:
        ValueError: an argument out of its range.

    Example:
        >>> TextFiles("poems").setup()
        Traceback (most recent call last):
        ...
        ValueError: there is no file or folder poems; give a text file, or a folder of text files
    """

    def __init__(
        self,
        path: str,
        tokens: Literal["characters", "bytes"] = "characters",
        length: int = 64,
        batch_size: int = 16,
        test_lengths: Sequence[int] = (),
        packed: bool = False,
        num_workers: int = 0,
        fingerprint: str | None = None,
        pattern: str = "*.txt",
    ) -> None:
        super().__init__(length, batch_size, test_lengths, packed, num_workers, fingerprint)
        if tokens not in ("characters", "bytes"):
            raise ValueError(f"tokens is {tokens!r}, expected 'characters' or 'bytes'")
        self.path = Path(path)
        self.tokens = tokens
        self.pattern = pattern

    @property
    def source(self) -> str:
        return str(self.path)

    def read(self) -> dict[str, list[Tensor]]:
        if not self.path.exists():
            raise ValueError(f"there is no file or folder {self.path}; give a text file, or a folder of text files")
        files = [self.path]
        if self.path.is_dir():
            files = sorted(file for file in self.path.rglob(self.pattern) if file.is_file())
            if not files:
                raise ValueError(f"{self.path} has no files {self.pattern}; give --data.init_args.pattern")
        texts = {file.relative_to(self.path).as_posix(): resources.read(file) for file in files}
        if not any(texts.values()):
            raise ValueError(f"{self.path} is empty; give a text")
        parts = split_documents(texts) if len(texts) > 2 else split_text("".join(texts.values()))
        self.vocabulary = Bytes() if self.tokens == "bytes" else Characters(parts["train"])
        return {name: [self.vocabulary.encode(text) for text in part] for name, part in parts.items()}
