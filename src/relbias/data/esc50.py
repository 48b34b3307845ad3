"""ESC-50: 2,000 environmental sounds of 50 classes, five seconds each."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any, Literal

import torch

from relbias import resources
from relbias.data.audio_folder import FileAudio, Files
from relbias.relations.base import check_size

FOLDS = 5


class ESC50(FileAudio):
    """ESC-50 (K. Piczak 2015, https://github.com/karolpiczak/ESC-50) in the layout of its archive.

    The folder holds meta/esc50.csv and the folder audio. It comes in five folds, clips of one recording in the same
    one: the test is fold k, the validation the next fold (after 5 comes 1), and the training the other three.

    Args:
        root: the folder.
        fold: k, 1 to 5. "seed" takes 1 + the seed of the training modulo 5, so that the seeds 0 to 4 of
            `relbias table` are the folds.
        **options: those of :class:`~relbias.data.audio_folder.FileAudio`.

    Raises:
        ValueError: an argument out of its range.

    Example:
        >>> ESC50("ESC-50").setup()
        Traceback (most recent call last):
        ...
        ValueError: there is no file ESC-50/meta/esc50.csv; unpack https://github.com/karolpiczak/ESC-50 and give ...
    """

    def __init__(self, root: str, fold: int | Literal["seed"] = "seed", **options: Any) -> None:
        super().__init__(root, **options)
        if fold != "seed":
            check_size("fold", fold, 1)
            if fold > FOLDS:
                raise ValueError(f"fold is {fold}, expected 1 to {FOLDS}")
        self.fold: int | Literal["seed"] = fold

    def find(self) -> Mapping[str, Files]:
        """The files of the folds.

        Raises:
            ValueError: there is no list of them, or one that lacks a column.
        """
        path = self.root / "meta" / "esc50.csv"
        if not path.is_file():
            raise ValueError(
                f"there is no file {path}; unpack https://github.com/karolpiczak/ESC-50 and give the folder that it "
                "makes as root"
            )
        rows = csv.DictReader(io.StringIO(resources.read(path)))
        test = 1 + torch.initial_seed() % FOLDS if self.fold == "seed" else self.fold
        names = {str(test): "test", str(test % FOLDS + 1): "val"}
        parts: dict[str, Files] = {"train": [], "val": [], "test": []}
        try:
            for row in rows:
                file_and_class = (self.root / "audio" / row["filename"], row["category"])
                parts[names.get(row["fold"], "train")].append(file_and_class)
        except KeyError as error:
            raise ValueError(f"{path} has no column {error}, expected filename, fold and category") from None
        return parts
