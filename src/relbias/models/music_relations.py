"""The relations between notes that a music transformer knows by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from relbias.relations import Index, Labels, Product, Relation, Sequence

_NEVER = 10_000
"""Semitones between a note and what is none, farther than any interval."""


@dataclass(frozen=True)
class Notes:
    """The notes of one call, a token each: step by step, in a step voice by voice, from the first voice of a bar on.

    A query is the token before the note that it predicts, and stands for that note: its voice, its step, its bar. A key
    is the note of its own token. So a query at n has the place n, and the key at n the place n - 1.

    Args:
        tokens: (B, N) integers.
        voices: V.
        steps_per_bar: S.
        num_pitches: tokens from here on are no pitches.
    """

    tokens: Tensor
    voices: int
    steps_per_bar: int
    num_pitches: int = 128

    @property
    def places(self) -> tuple[Tensor, Tensor]:
        """Of the queries and of the keys, counted from the beginning of a bar: (N,) int64 each."""
        places = torch.arange(self.tokens.shape[1], device=self.tokens.device)
        return places, places - 1

    def steps(self, steps: int = 1) -> tuple[Tensor, Tensor]:
        """How many times `steps` steps went by before the notes, (N,) int64."""
        queries, keys = self.places
        size = self.voices * steps
        return queries.div(size, rounding_mode="floor"), keys.div(size, rounding_mode="floor")

    def voice(self) -> tuple[Tensor, Tensor]:
        """The voices, (N,) int64 in [0, V)."""
        queries, keys = self.places
        return queries % self.voices, keys % self.voices

    def phase(self) -> tuple[Tensor, Tensor]:
        """The steps in their bar, (N,) int64 in [0, S)."""
        queries, keys = self.steps()
        return queries % self.steps_per_bar, keys % self.steps_per_bar

    def pitch(self) -> tuple[Tensor, Tensor]:
        """The pitches, in semitones, (B, N) int64: of a query the note that its voice leaves, of a key its own.

        A rest and the beginning of a piece are far from every note and from each other.
        """
        keys = self.tokens.long()
        left = torch.nn.functional.pad(keys, (self.voices - 1, 0), value=self.num_pitches)[:, : keys.shape[1]]
        return left.where(left < self.num_pitches, 2 * _NEVER), keys.where(keys < self.num_pitches, -_NEVER)


def music_relations(voices: int, steps_per_bar: int, max_steps: int, max_interval: int) -> dict[str, Relation]:
    """Each relation, by its key in a mapping of encodings.

    Args:
        voices: V.
        steps_per_bar: S.
        max_steps: the largest time with codes of its own in "time_by_voice", in steps.
        max_interval: the largest interval with a code of its own, in semitones.
    """
    return {
        "offset": Sequence(),
        "time": Sequence(),
        "bar": Sequence(),
        "phase": Labels(steps_per_bar),
        "voice": Labels(voices),
        "time_by_voice": Product((Sequence(max_steps), Labels(voices))),
        "interval": Sequence(max_interval),
    }


_MAKE: Mapping[str, Callable[[Any, Notes], Index]] = {
    "time": lambda relation, notes: _sequence(relation, notes.steps()),
    "bar": lambda relation, notes: _sequence(relation, notes.steps(notes.steps_per_bar)),
    "phase": lambda relation, notes: relation(*notes.phase()),
    "voice": lambda relation, notes: relation(*notes.voice()),
    "time_by_voice": lambda relation, notes: relation(
        _sequence(relation.relations[0], notes.steps()), relation.relations[1](*notes.voice())
    ),
    "interval": lambda relation, notes: _sequence(relation, notes.pitch()),
}
"""What makes each index; that of "offset" is inferred."""


def _sequence(relation: Sequence, positions: tuple[Tensor, Tensor]) -> Index:
    return relation(positions[0].shape[-1], None, *positions)


def music_indices(relation: Any, notes: Notes) -> dict[str, Index] | None:
    """The indices of one call, by key, for a mapping of relations; None for a relation alone, which is inferred."""
    if not isinstance(relation, Mapping):
        return None
    return {key: _MAKE[key](each, notes) for key, each in relation.items() if key in _MAKE}
