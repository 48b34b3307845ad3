"""Tasks with a rule, whose answers at any length are known."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler

from relbias.data.lengths import check_lengths
from relbias.data.order import shuffled
from relbias.data.windows import IGNORED
from relbias.relations.base import check_size

Rule = Literal["copy", "reverse", "addition", "parity"]
SEPARATOR, PLUS, END, NUM_TOKENS = 10, 11, 12, 13  # 0 to 9 are digits
_VAL, _TEST = 1, 2  # the seeds of these parts; the training's comes from that of the run


def problems(rule: Rule, length: int, count: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draws problems of a length and solves them.

    Args:
        rule: of L digits, "copy" repeats them and "reverse" does so from the last to the first; "parity" gives the sum
            modulo 2 of L bits; "addition" the sum of two numbers of L digits, from the last digit to the first.
        length: L, of what is given; of each number for "addition".
        count: B.
        generator: of the digits, each of which is as likely as the others.

    Returns:
        The questions, (B, L), for "addition" with `PLUS` between the numbers (B, 2 L + 1), and the answers: (B, L),
        (B, 1) for "parity", (B, L + 1) for "addition", which has a 0 in front where there is no carry.

    Example:
        >>> question, answer = problems("addition", 2, 1, np.random.default_rng(3))
        >>> question.tolist(), answer.tolist()  # 80 + 12 = 92
        ([[8, 0, 11, 1, 2]], [[2, 9, 0]])
    """
    if rule == "addition":
        numbers = generator.integers(10, size=(count, 2, length))
        carry, sums = np.zeros(count, dtype=np.int64), []
        for place in reversed(range(length)):
            total = numbers[:, :, place].sum(1) + carry
            sums.append(total % 10)
            carry = total // 10
        plus = np.full((count, 1), PLUS)
        return np.concatenate((numbers[:, 0], plus, numbers[:, 1]), axis=1), np.stack([*sums, carry], axis=1)
    digits = generator.integers(2 if rule == "parity" else 10, size=(count, length))
    if rule == "parity":
        return digits, digits.sum(1, keepdims=True) % 2
    return digits, digits if rule == "copy" else digits[:, ::-1]


class Algorithmic(LightningDataModule):
    """Problems with a rule, drawn anew for each batch; those of a batch have one length, so that none is padded.

    Without `source` a batch is for a decoder: tokens (B, N), the question, a separator and the answer; and targets
    (B, N), which are the answer and its end, and where the question stands count in no loss. With it, for an encoder
    and a decoder, a batch is (question (B, L), tokens (B, N), targets (B, N)): the separator and the answer, and the
    answer and its end. All are int64; there are 13 different tokens.

    Training problems have lengths from 1 to `length`, each as likely for a batch; validation problems and those of the
    first test dataloader have `length`, those of the others the lengths of `test_lengths`. They are always the same
    for a length.

    Args:
        rule: see :func:`problems`.
        length: the longest of the training; of each number for "addition".
        batch_size: problems in a batch of the training.
        batches_per_epoch: batches of the training, of all processes together.
        test_lengths: other lengths that are tested too, increasing.
        num_test: problems for each length of the test, and for the validation.
        source: whether the question is a tensor of its own.
        num_workers: processes that load batches.

    Raises:
        ValueError: an argument out of its range.

    Example:
        >>> data = Algorithmic("reverse", length=4)
        >>> tokens, targets = next(iter(data.test_dataloader_at(3)))
        >>> tokens[0].tolist(), targets[0].tolist()
        ([9, 3, 2, 10, 2, 3, 9], [-100, -100, -100, 2, 3, 9, 12])
    """

    def __init__(
        self,
        rule: Rule,
        length: int = 20,
        batch_size: int = 64,
        batches_per_epoch: int = 200,
        test_lengths: Sequence[int] = (),
        num_test: int = 256,
        source: bool = False,
        num_workers: int = 0,
    ) -> None:
        super().__init__()
        if rule not in get_args(Rule):
            raise ValueError(f"rule is {rule!r}, expected one of {', '.join(get_args(Rule))}")
        sizes = {"length": length, "batch_size": batch_size, "batches_per_epoch": batches_per_epoch}
        for name, size in (*sizes.items(), ("num_test", num_test)):
            check_size(name, size, 1)
        check_size("num_workers", num_workers, 0)
        check_lengths(test_lengths, length)
        self.rule: Rule = rule
        self.length = length
        self.batch_size = batch_size
        self.batches_per_epoch = batches_per_epoch
        self.test_lengths = list(test_lengths)
        self.num_test = num_test
        self.source = source
        self.num_workers = num_workers

    def adapt_to(self, task: Any) -> None:
        """Refuses a task whose network knows fewer than the 13 tokens."""
        found = getattr(getattr(task, "network", None), "num_tokens", NUM_TOKENS)
        if found < NUM_TOKENS:
            raise ValueError(
                f"Algorithmic has {NUM_TOKENS} different tokens and the network's num_tokens is {found}; give "
                f"--model.init_args.network.init_args.num_tokens {NUM_TOKENS}"
            )

    def size_of(self, batch: tuple[Tensor, ...]) -> int:
        """The length of a batch's problems."""
        question = batch[0].shape[1] if self.source else int((batch[-1][0] == IGNORED).sum())
        return (question - 1) // 2 if self.rule == "addition" else question

    def _batch(self, length: int, count: int, seed: Sequence[int]) -> tuple[Tensor, ...]:
        question, answer = problems(self.rule, length, count, np.random.default_rng(seed))
        separator, end = np.full((count, 1), SEPARATOR), np.full((count, 1), END)
        answer = np.concatenate((separator, answer, end), axis=1)
        if self.source:
            return tuple(torch.tensor(part) for part in (question, answer[:, :-1], answer[:, 1:]))
        whole = torch.tensor(np.concatenate((question, answer), axis=1))
        targets = whole[:, 1:].clone()
        targets[:, : question.shape[1]] = IGNORED
        return whole[:, :-1].contiguous(), targets

    def _training(self, sampler: DistributedSampler, number: int) -> tuple[Tensor, ...]:
        seed = [sampler.seed, sampler.epoch, number]
        length = int(np.random.default_rng([*seed, 0]).integers(1, self.length + 1))
        return self._batch(length, self.batch_size, [*seed, 1])

    def train_dataloader(self) -> DataLoader:
        """Batches that depend on the seed, the epoch and their number in it."""
        numbers: Any = range(self.batches_per_epoch)
        sampler = shuffled(numbers, self.trainer)
        make: Any = partial(self._training, sampler)
        return DataLoader(numbers, None, sampler=sampler, num_workers=self.num_workers, collate_fn=make)

    def val_dataloader(self) -> DataLoader:
        """Problems of the longest length of the training."""
        return self._fixed(self.length, _VAL)

    def test_dataloader(self) -> list[DataLoader]:
        """Other problems of that length, and of each of `test_lengths`."""
        return [self.test_dataloader_at(length) for length in (self.length, *self.test_lengths)]

    def test_dataloader_at(self, length: int) -> DataLoader:
        """Problems of a length, always the same.

        Returns:
            Batches as in the training.
        """
        check_size("length", length, 1)
        return self._fixed(length, _TEST)

    def predict_dataloader(self) -> DataLoader:
        """The problems of the first test dataloader."""
        return self.test_dataloader_at(self.length)

    def _fixed(self, length: int, part: int) -> DataLoader:
        starts: Any = range(0, self.num_test, self.batch_size)
        make: Any = partial(self._part, length, part)
        return DataLoader(starts, None, collate_fn=make)

    def _part(self, length: int, part: int, start: int) -> tuple[Tensor, ...]:
        whole = self._batch(length, self.num_test, [part, length])
        return tuple(tensor[start : start + self.batch_size] for tensor in whole)
