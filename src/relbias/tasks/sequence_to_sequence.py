"""Answers that are right as a whole or not."""

from __future__ import annotations

import torch
from torch import Tensor

from relbias.data.windows import IGNORED
from relbias.tasks.language_modeling import LanguageModeling, mean


class SequenceToSequence(LanguageModeling):
    """Cross entropy of the tokens of an answer, and how many answers are right in every token.

    A batch is (tokens (B, N), targets (B, N)) for a decoder, which is given the question in its tokens and -100 as its
    targets there; or (question (B, L), tokens (B, N), targets (B, N)) for an encoder and a decoder. Logs train/loss,
    val/loss, test/loss, test/perplexity and test/exact_match, a share from 0 to 1, and for the `test_lengths` of the
    data test/loss_LENGTH and test/exact_match_LENGTH.

    Each token is predicted from the right ones before it. If all predictions are the right ones, greedy generation
    gives exactly the answer, and otherwise it does not: the match is that of the generated answer.

    Args:
        network: builds the network from the encoding; it maps tokens (B, N), or question (B, L) and tokens (B, N), to
            logits (B, N, num_tokens).
        encoding: as in :class:`~relbias.tasks.language_modeling.LanguageModeling`.
        lr: the highest learning rate.
        weight_decay: see :class:`~relbias.tasks.base.Task`.
        warmup_epochs: see :class:`~relbias.tasks.base.Task`.

    Example:
        >>> from relbias.models import LanguageModel
        >>> task = SequenceToSequence(lambda encoding: LanguageModel(encoding, num_tokens=13, dim=32, depth=1), "rope")
        >>> tokens = torch.tensor([[4, 2, 10, 4, 2]])
        >>> sorted(task.scores((tokens, torch.tensor([[-100, -100, 4, 2, 12]]))))
        ['exact_match', 'loss']
    """

    extrapolation = "length of the question"
    extrapolation_metrics = ("exact_match", "loss")

    def logits(self, batch: tuple[Tensor, ...]) -> Tensor:
        """The logits of a batch, (B, N, num_tokens)."""
        return self.network(*batch[:-1])

    def targets(self, batch: tuple[Tensor, ...]) -> Tensor:
        """The targets of a batch, (B, N)."""
        return batch[-1]

    def scores(self, batch: tuple[Tensor, ...]) -> dict[str, tuple[Tensor, Tensor]]:
        """The loss and the share of answers that are right in every token, with their weights."""
        losses, counted, logits = self.losses(batch)
        right = is_right(logits, self.targets(batch))
        return {
            "exact_match": (right.float().mean(), torch.tensor(len(right), device=right.device)),
            "loss": mean(losses, counted),
        }

    def predict_step(self, batch: tuple[Tensor, ...], batch_idx: int) -> dict[str, Tensor]:
        """The mean loss of each answer, (B,), and whether it is right in every token, 0 or 1."""
        losses, counted, logits = self.losses(batch)
        loss = losses.sum(1) / counted.sum(1).clamp(min=1)
        return {"loss": loss, "exact_match": is_right(logits, self.targets(batch)).long()}


def is_right(logits: Tensor, targets: Tensor) -> Tensor:
    """Whether the likeliest token is the right one wherever a target counts, (B,) bool.

    Example:
        >>> logits = torch.eye(3)[torch.tensor([[0, 1, 2], [0, 1, 2]])]
        >>> is_right(logits, torch.tensor([[-100, 1, 2], [-100, 1, 0]]))
        tensor([ True, False])
    """
    return ((logits.argmax(-1) == targets) | (targets == IGNORED)).all(1)
