"""Recordings of spoken digits in a folder, as of the Free Spoken Digit Dataset."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from relbias.data.parts import NAMES

_NAME = re.compile(r"(\d)_(.+)_(\d+)\.wav", re.IGNORECASE)
NUM_TEST, NUM_VAL = 5, 2  # takes


class Recording(NamedTuple):
    """A recording of one digit.

    Args:
        path: of the file, `{digit}_{speaker}_{take}.wav`.
        digit: 0 to 9.
        speaker: a name.
        take: from 0.
    """

    path: Path
    digit: int
    speaker: str
    take: int


def find_recordings(path: str | Path) -> list[Recording]:
    """The recordings in a folder, by speaker, digit and take.

    Args:
        path: of a folder with files named `{digit}_{speaker}_{take}.wav`; other files than WAV are not looked at.

    Raises:
        ValueError: there is no such folder, it has no WAV files, or one of another name.

    Example:
        >>> find_recordings("nowhere")
        Traceback (most recent call last):
        ...
        ValueError: there is no folder nowhere; give one with files such as 7_jackson_32.wav
    """
    folder = Path(path)
    if not folder.is_dir():
        raise ValueError(f"there is no folder {path}; give one with files such as 7_jackson_32.wav")
    found = []
    for file in folder.iterdir():
        if file.suffix.lower() == ".wav":
            match = _NAME.fullmatch(file.name)
            if match is None:
                raise ValueError(f"{file} is not named DIGIT_SPEAKER_TAKE.wav, as 7_jackson_32.wav is")
            found.append(Recording(file, int(match[1]), match[2], int(match[3])))
    if not found:
        raise ValueError(f"{path} has no WAV files; give a folder with files such as 7_jackson_32.wav")
    return sorted(found, key=lambda recording: (recording.speaker, recording.digit, recording.take))


def split_recordings(
    recordings: Sequence[Recording], held_out_speaker: str | None = None
) -> dict[str, list[Recording]]:
    """The official split, takes 0 to 4 for the test and the others for training, of which 5 and 6 are the validation.

    Args:
        recordings: of a folder.
        held_out_speaker: whose recordings, all of them, are the test instead; then takes 5 and 6 of the others are the
            validation, and the rest, takes 0 to 4 too, is the training.

    Returns:
        The recordings of train, val and test.

    Raises:
        ValueError: there is no such speaker, or a part has no recording.

    Example:
        >>> takes = [Recording(Path(f"7_ann_{take}.wav"), 7, "ann", take) for take in range(50)]
        >>> {name: len(part) for name, part in split_recordings(takes).items()}
        {'train': 43, 'val': 2, 'test': 5}
    """
    speakers = sorted({recording.speaker for recording in recordings})
    if held_out_speaker is not None and held_out_speaker not in speakers:
        raise ValueError(f"there is no speaker {held_out_speaker}; there are {', '.join(speakers)}")
    parts: dict[str, list[Recording]] = {name: [] for name in NAMES}
    for recording in recordings:
        tested = recording.take < NUM_TEST if held_out_speaker is None else recording.speaker == held_out_speaker
        held = NUM_TEST <= recording.take < NUM_TEST + NUM_VAL
        parts["test" if tested else "val" if held else "train"].append(recording)
    for name, part in parts.items():
        if not part:
            raise ValueError(
                f"there are no recordings for {name}: takes 0 to 4 are the test, 5 and 6 the validation, the others "
                "the training"
                if held_out_speaker is None
                else f"there are no recordings for {name} of other speakers than {held_out_speaker}"
            )
    return parts
