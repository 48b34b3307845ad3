"""Music in voices on a grid of steps, from a JSON file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from relbias import resources

PITCHES, REST, START, NUM_TOKENS = 128, 128, 129, 130
"""Tokens: 0 to 127 are MIDI pitches."""
_PARTS = {"train": "train", "valid": "val", "val": "val", "test": "test"}
_MOST_STEPS = 100_000


def read_chorales(path: str | Path, voices: int = 4) -> dict[str, list[Tensor]]:
    """The pieces of each part of a JSON file.

    The file is that of the JSB chorales: an object with the lists train, valid (or val) and test, each of pieces; a
    piece is a list of steps, and a step a list of a MIDI pitch per voice, or -1 where a voice is silent.

    Args:
        path: of the file.
        voices: V, how many a step has.

    Returns:
        By train, val and test the pieces, (T, V) int64 each, of tokens: a pitch, or `REST`.

    Raises:
        ValueError: there is no such file, it is not JSON, or a part or a piece is not as above; the message names it.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"there is no file {path}; give a JSON file of music with the lists train, valid and test")
    try:
        found = json.loads(resources.read(path))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds a {type(found).__name__}, expected an object with train, valid and test")
    parts = {_PARTS[name]: pieces for name, pieces in found.items() if name in _PARTS}
    missing = {"train", "val", "test"} - parts.keys()
    if missing:
        raise ValueError(f"{path} has no {sorted(missing)}, it has {sorted(found)}; expected train, valid and test")
    for part, pieces in parts.items():
        if not isinstance(pieces, list):
            raise ValueError(f"{path} has a {type(pieces).__name__} in {part}, expected a list of pieces")
    return {
        part: [_piece(f"{path}: piece {number} of {part}", piece, voices) for number, piece in enumerate(parts[part])]
        for part in ("train", "val", "test")
    }


def _piece(name: str, steps: Any, voices: int) -> Tensor:
    """The tokens of a piece, (T, V) int64, or a ValueError that begins with its name."""
    if not isinstance(steps, list) or not 0 < len(steps) <= _MOST_STEPS:
        raise ValueError(f"{name} is not a list of 1 to {_MOST_STEPS} steps")
    for place, step in enumerate(steps):
        if not isinstance(step, list) or len(step) != voices:
            raise ValueError(f"{name}: step {place} is {str(step)[:60]}, expected {voices} pitches, one for each voice")
        for pitch in step:
            # JSON writes some pitches as 60.0, and NaN is not a number of a voice.
            if isinstance(pitch, bool) or not isinstance(pitch, int | float) or pitch not in range(-1, PITCHES):
                raise ValueError(
                    f"{name}: step {place} has the pitch {pitch!r}, expected a MIDI pitch from 0 to 127, or -1"
                )
    tokens = torch.tensor(steps).long()
    return tokens.where(tokens >= 0, REST)
