"""Uses of variables, some of which name the wrong one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DistributedSampler

from relbias.data.order import draws
from relbias.data.source.batches import Row, batch_of
from relbias.data.source.file_windows import FileWindow
from relbias.data.source.findings import Suspicion
from relbias.data.source.samples import as_it_is, with_another
from relbias.data.variable_uses import VariableUses

_HALF = 0.5


class MisusedVariables(VariableUses):
    """Functions in half of which one use of a variable names another of the function's variables, to be found.

    In half of the samples the name is replaced by another that is visible there, each as likely as any; the words,
    edges and variables are then those of the program with the other name. Which half and which names is drawn anew in
    each epoch of a training, and the same in every evaluation. A use at which no other variable is visible stays.

    Batches are those of :class:`~relbias.data.variable_uses.VariableUses`, as are the arguments, and have

    - wrong: (B,) int64, the token that is wrong, or -1.
    - target: (B,) int64, the number of the right variable there, or -1.
    - reads: (B, N) bool, the tokens that could be wrong: those that read one of the function's own variables.

    Example:
        >>> MisusedVariables(min_variables=1)
        Traceback (most recent call last):
        ...
        ValueError: min_variables must be an integer of at least 2, got 1
    """

    threshold = 0.9  # what it finds, and what it suspects wrongly: the table in recipes/code/README.md

    def rows(self, part: str, samples: Sequence[int], sampler: DistributedSampler | None = None) -> dict[str, Tensor]:
        """The batch of some samples of a part."""
        uniform = self._uniform(samples) if sampler is None else draws(sampler, torch.tensor(samples), 2)
        rows, wrong, target = [], [], []
        for sample, (whether, which) in zip(samples, uniform.tolist(), strict=True):
            encoded, token = self.sample(part, sample)
            own = encoded.function.own
            right = own.names[own.numbers[token]]
            others: dict[str, int] = {}
            if whether < _HALF:
                others = encoded.visible.at(token)
                others.pop(right, None)
            if others:
                name = sorted(others)[int(which * len(others))]
                rows.append(with_another(encoded, token, name, others[name]))
            else:
                rows.append(as_it_is(encoded))
            wrong.append(token if others else -1)
            target.append(int(own.numbers[token]) if others else -1)
        return _batch(rows, wrong, target)

    def file_batches(self, windows: Iterable[FileWindow]) -> Iterator[tuple[dict[str, Tensor], list[FileWindow]]]:
        """Batches of a user's functions as they are.

        Args:
            windows: from :meth:`~relbias.data.variable_uses.VariableUses.windows`.

        Returns:
            Batches as those of a test, in which nothing is known to be wrong, and the windows of the rows. `reads` are
            all of a window's; those that no other window has are its `asked`.
        """
        every = iter(windows)
        while chosen := list(islice(every, self.batch_size)):
            unknown = [-1] * len(chosen)
            rows = [as_it_is(window.encoded) for window in chosen]
            yield _batch(rows, unknown, unknown), chosen

    def suspicion(self, row: FileWindow, answer: dict[str, Any]) -> Suspicion | None:
        """The likeliest wrong use of a window with what should stand there; None if another window judges that use."""
        if answer["place"] not in row.asked:
            return None
        return Suspicion(row, answer["place"], answer["suggestion"], answer["place_probability"])

    @staticmethod
    def _uniform(samples: Sequence[int]) -> Tensor:
        """For each sample of an evaluation two uniform random numbers, its own."""
        rows = [np.random.default_rng([0, sample]).random(2).tolist() for sample in samples]
        return torch.tensor(rows, dtype=torch.float64)  # in which none is rounded to 1


def _batch(rows: Sequence[Row], wrong: list[int], target: list[int]) -> dict[str, Tensor]:
    batch = batch_of(rows)
    reads = torch.zeros(batch["variables"].shape, dtype=torch.bool)
    for place, row in enumerate(rows):
        reads[place, list(row.encoded.function.own.reads)] = True
    return {
        **batch,
        "wrong": torch.tensor(wrong),
        "target": torch.tensor(target),
        "reads": reads,
    }
