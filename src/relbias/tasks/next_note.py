"""Prediction of the next note of music."""

from __future__ import annotations

from torch import Tensor

from relbias.tasks.language_modeling import LanguageModeling, mean


class NextNote(LanguageModeling):
    """Cross entropy of the next note, in nats per note.

    `LanguageModeling` without the losses over the last quarters of windows, since windows of music overlap. Logs
    train/loss, val/loss, test/loss, test/perplexity and, for the `test_lengths` of the data, test/loss_LENGTH.

    Args:
        network: builds the network from the encoding; the network maps tokens (B, N) to logits (B, N, num_tokens).
        encoding: as in :class:`~relbias.tasks.language_modeling.LanguageModeling`.
        lr: the highest learning rate.
        weight_decay: see :class:`~relbias.tasks.base.Task`.
        warmup_epochs: see :class:`~relbias.tasks.base.Task`.

    Example:
        >>> import torch
        >>> from relbias.models import MusicTransformer
        >>> task = NextNote(lambda encoding: MusicTransformer(encoding, dim=32, depth=1), {"time": "t5"})
        >>> sorted(task.scores((torch.zeros(2, 64, dtype=torch.int64), torch.zeros(2, 64, dtype=torch.int64))))
        ['loss']
    """

    extrapolation = "length, notes"
    extrapolation_metrics = ("loss",)

    def scores(self, batch: tuple[Tensor, ...]) -> dict[str, tuple[Tensor, Tensor]]:
        """The loss of a batch, and the number of notes that count."""
        losses, counted, _ = self.losses(batch)
        return {"loss": mean(losses, counted)}
