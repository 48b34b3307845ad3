"""Speech Commands: 105,829 spoken words of 35 classes, a second each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from relbias import resources
from relbias._extras import extra
from relbias.data.audio_folder import FileAudio, Files

with extra("audio"):
    from torchaudio.datasets import SPEECHCOMMANDS

_ARCHIVE = "speech_commands_v0.02"
_LISTS = {"val": "validation_list.txt", "test": "testing_list.txt"}


class SpeechCommands(FileAudio):
    """Speech Commands (P. Warden 2018, https://arxiv.org/abs/1804.03209) in the layout of its archive.

    The folder holds a folder of WAV files for each word, and validation_list.txt and testing_list.txt, the official
    split; folders that begin with "_", such as the background noise, are no words.

    Args:
        root: that folder, or the one to which torchaudio fetched the archive.
        download: whether torchaudio is to fetch it to `root`, 2.4 GB, where it is missing.
        **options: those of :class:`~relbias.data.audio_folder.FileAudio`.

    Raises:
        ValueError: an argument out of its range.

    Example:
        >>> SpeechCommands("words").setup()
        Traceback (most recent call last):
        ...
        ValueError: words does not hold Speech Commands (validation_list.txt and testing_list.txt); download=True ...
    """

    def __init__(self, root: str = "data", download: bool = False, **options: Any) -> None:
        super().__init__(root, **options)
        self.download = download

    def prepare_data(self) -> None:
        """Fetches the archive where it is missing and that was asked for.

        Raises:
            ValueError: it is missing and is not to be fetched, or cannot be.
        """
        try:
            self._folder()
        except ValueError:
            if not self.download:
                raise
            self.root.mkdir(parents=True, exist_ok=True)
            try:
                SPEECHCOMMANDS(str(self.root), download=True)
            except (OSError, RuntimeError) as error:
                raise ValueError(
                    f"Speech Commands cannot be fetched: {' '.join(str(error).split())}; unpack {_ARCHIVE}.tar.gz into "
                    f"{self.root} by hand"
                ) from None

    def _folder(self) -> Path:
        for folder in (self.root, self.root / "SpeechCommands" / _ARCHIVE, self.root / _ARCHIVE):
            if all((folder / name).is_file() for name in _LISTS.values()):
                return folder
        raise ValueError(
            f"{self.root} does not hold Speech Commands ({' and '.join(_LISTS.values())}); download=True fetches it "
            "(--data.init_args.download true)"
        )

    def find(self) -> Mapping[str, Files]:
        """The files of the official split.

        Raises:
            ValueError: there are none, or a list names a file that is missing.
        """
        folder = self._folder()
        words = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("_"))
        found = {f"{word}/{path.name}" for word in words for path in (folder / word).glob("*.wav")}
        parts: dict[str, list[str]] = {"train": []}
        for part, name in _LISTS.items():
            lines = [line.strip() for line in resources.read(folder / name).splitlines() if line.strip()]
            missing = [line for line in lines if line not in found]
            if missing:
                raise ValueError(f"{folder / name} names {missing[0]}, which is not there; unpack the archive anew")
            parts[part] = lines
            found -= {*lines}
        parts["train"] = sorted(found)
        return {part: [(folder / name, name.partition("/")[0]) for name in names] for part, names in parts.items()}
