"""Tests of sequences at lengths other than that of the training."""

from __future__ import annotations

import sys
from abc import abstractmethod
from typing import Any

from torch import Tensor, nn
from torchmetrics import MeanMetric

from relbias.tasks.base import Task


class AtLengths(Task):
    """A task whose test has a dataloader for each of several lengths.

    The first test dataloader has the length of the training. Where the data module has `test_lengths`, its last test
    dataloaders have these lengths, and each number of the test is logged as test/NUMBER_LENGTH, that of the same
    network. A length that the network refuses, as one with learned positions does, is told and left out. All are means
    over the batches of all processes.

    A subclass defines `scores`, and besides what a :class:`~relbias.tasks.base.Task` does.
    """

    @abstractmethod
    def scores(self, batch: Any) -> dict[str, tuple[Tensor, Tensor]]:
        """What is measured of a batch at any length: means, and the weights that they have in the mean of all."""

    def metric(self, name: str) -> MeanMetric:
        """What collects a number of the test; here its mean."""
        return MeanMetric()

    def prepare_for_size(self, size: int, unit: Any = None) -> None:
        """Raises ValueError: a network of sequences takes a length as it is, or not at all."""
        raise ValueError("no table of a sequence is made longer")

    def on_test_start(self) -> None:
        """Makes the means of each test dataloader."""
        lengths = getattr(getattr(self.trainer, "datamodule", None), "test_lengths", [])
        self._suffixes = ["", *(f"_{length}" for length in lengths)]
        self._left_out: set[str] = set()
        self.test_means: Any = nn.ModuleDict()

    def on_test_end(self) -> None:
        """Forgets them."""
        del self.test_means

    def test_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Collects what is measured of a test dataloader."""
        suffix = self._suffixes[dataloader_idx]
        if suffix in self._left_out:
            return
        try:
            scores = self.scores(batch)
        except ValueError as error:
            if not suffix or batch_idx:
                raise
            self._left_out.add(suffix)
            if self.trainer.is_global_zero:
                print(f"test at {suffix[1:]}: left out: {error}", file=sys.stderr, flush=True)
            return
        if not suffix:
            scores = self.scores_at_own_length(scores)
        for name, score in scores.items():
            self._collect(name, suffix, *score)

    def scores_at_own_length(self, scores: dict[str, tuple[Tensor, Tensor]]) -> dict[str, tuple[Tensor, Tensor]]:
        """What is measured at the length of the training; here the same."""
        return scores

    def _collect(self, name: str, suffix: str, value: Tensor, weight: Tensor) -> None:
        key = f"{name}{suffix}"
        if key not in self.test_means:
            self.test_means[key] = self.metric(name).to(self.device)
        self.test_means[key].update(value, weight)
        place: Any = {"metric_attribute": f"test_means.{key}", "add_dataloader_idx": False}
        self.log(f"test/{key}", self.test_means[key], on_step=False, on_epoch=True, batch_size=1, **place)
