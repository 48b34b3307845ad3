"""Spoken digits, one in a clip."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from torch import Tensor
from torch.utils.data import Dataset

from relbias.data.audio import Audio
from relbias.data.audio_files import AudioFiles, Broken, check_broken
from relbias.data.digit_recordings import find_recordings, split_recordings


class SpokenDigits(Audio):
    """Recordings of spoken digits with the digit as their label, such as the Free Spoken Digit Dataset.

    The parts are those of :func:`~relbias.data.digit_recordings.split_recordings`: takes 0 to 4 are the test.

    Args:
        path: of a folder with files named `{digit}_{speaker}_{take}.wav`
            (https://github.com/Jakobovski/free-spoken-digit-dataset).
        held_out_speaker: whose recordings are the test instead, all of them.
        sample_rate: see :class:`~relbias.data.audio.Audio`, also for all that follows but `broken`.
        num_mels: F, the number of mel bands.
        window_ms: in milliseconds.
        hop_ms: in milliseconds.
        num_frames: T, in frames.
        batch_size: clips per batch.
        augment: changes the features of a training clip.
        test_lengths: in frames.
        num_workers: processes that load batches.
        broken: what is done with a broken file: "raise", or "skip", which leaves it out with a warning.
        classes: the names of the classes that are expected.

    Raises:
        ValueError: an argument out of its range, or there is no such folder, file or speaker.

    Example:
        >>> SpokenDigits("nowhere").setup()
        Traceback (most recent call last):
        ...
        ValueError: there is no folder nowhere; give one with files such as 7_jackson_32.wav
    """

    def __init__(
        self,
        path: str | Path,
        held_out_speaker: str | None = None,
        sample_rate: int = 8000,
        num_mels: int = 40,
        window_ms: float = 25.0,
        hop_ms: float = 10.0,
        num_frames: int | None = None,
        batch_size: int = 32,
        augment: Callable[[Tensor], Tensor] | None = None,
        test_lengths: Sequence[int] = (),
        num_workers: int = 0,
        broken: Broken = "raise",
        classes: list[str] | None = None,
    ) -> None:
        check_broken(broken)
        super().__init__(
            sample_rate,
            num_mels,
            window_ms,
            hop_ms,
            num_frames,
            batch_size,
            augment,
            test_lengths,
            num_workers,
            classes,
        )
        self.path, self.held_out_speaker = path, held_out_speaker
        self.broken: Broken = broken

    def read(self) -> tuple[Mapping[str, Dataset], list[str]]:
        """The recordings of train, val and test, and the digits that there are."""
        recordings = find_recordings(self.path)
        digits = sorted({recording.digit for recording in recordings})
        parts = {}
        for name, part in split_recordings(recordings, self.held_out_speaker).items():
            files = [recording.path for recording in part]
            labels = [digits.index(recording.digit) for recording in part]
            parts[name] = AudioFiles(files, labels, self.sample_rate, self.logmel.window).checked(self.broken)
        return parts, [str(digit) for digit in digits]
