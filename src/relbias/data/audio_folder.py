"""Audio files in folders named after their classes, or listed in a CSV file."""

from __future__ import annotations

import csv
import io
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from relbias import resources
from relbias.data.audio import Audio
from relbias.data.audio_files import AudioFiles, Broken, check_broken
from relbias.data.images import split
from relbias.data.parts import NAMES
from relbias.data.waveforms import EXTENSIONS, Decoder, check_decoder
from relbias.relations.base import check_size

Files = list[tuple[Path, str]]
"""Files with the names of their classes."""


class FileAudio(Audio):
    """What the data modules of audio files have in common. A subclass defines `find`.

    Args:
        root: the folder.
        decoder: see :func:`~relbias.data.waveforms.read_waveform`.
        broken: "raise" for an error that names a file that is empty, damaged or shorter than a window, when it is read;
            "skip" reads each file once before the training and leaves those out, which a warning names.
        **options: those of :class:`~relbias.data.Audio`.
    """

    def __init__(self, root: str, decoder: Decoder = "soundfile", broken: Broken = "raise", **options: Any) -> None:
        super().__init__(**options)
        check_decoder(decoder)
        check_broken(broken)
        self.root = Path(root)
        self.decoder: Decoder = decoder
        self.broken: Broken = broken

    @abstractmethod
    def find(self) -> Mapping[str, Files]:
        """The files of the parts, that for training first: train, val and test."""

    def read(self) -> tuple[dict[str, AudioFiles], list[str]]:
        """The files that `find` finds, without the broken ones where those are to be skipped, and the classes.

        Raises:
            ValueError: there are fewer than two classes, or the training part lacks one.
        """
        found = self.find()
        classes = sorted({name for files in found.values() for _, name in files})
        if len(classes) < 2:
            raise ValueError(f"{self.root} has {len(classes)} classes ({', '.join(classes)}), expected at least two")
        missing = sorted({*classes} - {name for _, name in next(iter(found.values()))})
        if missing:
            raise ValueError(f"the training part of {self.root} lacks the class {missing[0]!r}, which another part has")
        label = {name: number for number, name in enumerate(classes)}
        parts = {}
        for part, files in found.items():
            paths, labels = [path for path, _ in files], [label[name] for _, name in files]
            every = AudioFiles(paths, labels, self.sample_rate, self.logmel.window, self.decoder)
            parts[part] = every.checked(self.broken)
        return parts, classes


class AudioFolder(FileAudio):
    """A folder with a folder of audio files for each class, or with a CSV file that tells the class of each file.

    Without a CSV file the root holds a folder for each class, or the folders train and val (and test) that do; without
    a folder test the files of val are the test too. With one, its column `path` has the files, relative to the root,
    its column `label` their classes, and its column `part`, where there is one, "train", "val" or "test" of each.
    Where the parts are not given, each class is split at random by the shares.

    Args:
        root: the folder.
        csv_file: a file with the header path,label or path,label,part, relative to the root; None for folders.
        val_share: the share of each class for validation, where the parts are not given.
        test_share: the share of each class for the test, likewise.
        split_seed: of that split, which does not depend on the seed of the training.
        **options: those of :class:`FileAudio`.

    Raises:
        ValueError: an argument out of its range.

    Example:
        >>> AudioFolder("birds").setup()
        Traceback (most recent call last):
        ...
        ValueError: there is no folder birds; give one that holds a folder of audio files for each class
    """

    def __init__(
        self,
        root: str,
        csv_file: str | None = None,
        val_share: float = 0.1,
        test_share: float = 0.1,
        split_seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(root, **options)
        if not (0 < val_share < 1 and 0 < test_share < 1 and val_share + test_share < 1):
            raise ValueError(
                f"val_share is {val_share} and test_share is {test_share}, expected shares above 0, together below 1"
            )
        check_size("split_seed", split_seed, 0)
        self.csv_file = csv_file
        self.shares = (val_share, test_share)
        self.split_seed = split_seed

    def read(self) -> tuple[dict[str, AudioFiles], list[str]]:
        """The parts, as they are given or by a random split, and the classes."""
        parts, classes = super().read()
        if "" in parts:
            whole = parts[""]
            positions = split(whole.labels, classes, *self.shares, self.split_seed, "clips")
            parts = {part: whole.part(chosen) for part, chosen in zip(NAMES, positions, strict=True)}
        return {"test": parts["val"], **parts}, classes

    def find(self) -> Mapping[str, Files]:
        """The files of the parts that are given; all as the part "" where none are."""
        if not self.root.is_dir():
            raise ValueError(
                f"there is no folder {self.root}; give one that holds a folder of audio files for each class"
            )
        if self.csv_file is not None:
            return _listed(self.root, self.root / self.csv_file)
        names = [name for name in NAMES if (self.root / name).is_dir()]
        if "train" in names and "val" not in names:
            raise ValueError(f"{self.root} has a folder train and none for validation; name that val")
        given = names if "train" in names else [""]
        return {name: _in_folders(self.root / name) for name in given}


def _in_folders(folder: Path) -> Files:
    """The files in the folders of a folder, with the folders' names.

    Raises:
        ValueError: there are fewer than two folders, or one has no files.
    """
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    if len(names) < 2:
        inside = f"only the folder {names[0]}" if names else "no folder"
        raise ValueError(f"{folder} has {inside}, expected a folder of audio files for each of at least two classes")
    files: Files = []
    for name in names:
        own = sorted(path for path in (folder / name).rglob("*") if path.suffix.lower() in EXTENSIONS)
        if not own:
            raise ValueError(
                f"{folder / name} has no audio files ({', '.join(EXTENSIONS)}), and each folder is a class; add "
                "some or remove it"
            )
        files += [(path, name) for path in own]
    return files


def _listed(root: Path, path: Path) -> dict[str, Files]:
    """The files of a CSV file by their parts; all in the part "" where it has none.

    Raises:
        ValueError: it is missing or has not the columns, or a row lacks one of them or names no part.
    """
    if not path.is_file():
        raise ValueError(f"there is no file {path}; csv_file is relative to the folder {root}")
    reader = csv.DictReader(io.StringIO(resources.read(path).removeprefix("\ufeff")))
    rows, columns = list(reader), list(reader.fieldnames or [])
    if not {"path", "label"} <= {*columns}:
        raise ValueError(f"{path} needs rows with the columns path and label, found {', '.join(columns) or 'none'}")
    parts: dict[str, Files] = {name: [] for name in NAMES} if "part" in columns else {"": []}
    for number, row in enumerate(rows, start=2):
        part = row.get("part", "")
        if not row["path"] or not row["label"] or part not in parts:
            raise ValueError(
                f"line {number} of {path} has path {row['path']!r}, label {row['label']!r} and part {part!r}; expected "
                f"a path, a label and, where there are parts, one of {', '.join(NAMES)}"
            )
        parts[part].append((root / row["path"], row["label"]))
    if "part" in columns and not parts["test"]:
        parts.pop("test")
    return parts
