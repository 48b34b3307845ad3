"""Prediction of the next token by any network that takes an encoding."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import MeanMetric

from relbias.data.windows import IGNORED, quarter
from relbias.encodings import EncodingSpec
from relbias.tasks.at_lengths import AtLengths
from relbias.tasks.reach import unreached


class Perplexity(MeanMetric):
    """The exponential of a mean loss.

    Example:
        >>> import torch
        >>> metric = Perplexity()
        >>> metric.update(torch.tensor([1.0, 3.0]))
        >>> metric.compute()
        tensor(7.3891)
    """

    def compute(self) -> Tensor:
        """exp(mean)."""
        return super().compute().exp()


class LanguageModeling(AtLengths):
    """Cross entropy of the next token, in nats per token.

    A batch is (tokens (B, N), targets (B, N)), int64, and where documents are packed their numbers (B, N); a target of
    -100 counts in no loss. Logs train/loss per step, val/loss per epoch, and of the first test dataloader test/loss,
    test/loss_last_quarter, over the last N / 4 tokens of each window, which have the longest context, and
    test/perplexity, exp(loss). Where the data module has `test_lengths`, its last test dataloaders have windows of
    these lengths, and test/loss_LENGTH and test/loss_last_quarter_LENGTH are those of the same network. A length that
    the network refuses, as one with learned positions does, is told and left out. All are means over the tokens of all
    processes.

    At the start of a training a line is printed for each table with buckets that no pair of the training reaches.

    Args:
        network: builds the network from the encoding; the network maps tokens (B, N) to logits (B, N, num_tokens) of
            the token after each, and takes `document_ids` where the data packs documents.
        encoding: the one encoding key: a name, a mapping from relations to names or callables, or a callable
            (number of heads, head size, relation) -> Encoding.
        lr: the highest learning rate.
        weight_decay: see :class:`~relbias.tasks.base.Task`.
        warmup_epochs: see :class:`~relbias.tasks.base.Task`.

    Example:
        >>> import torch
        >>> from relbias.models import LanguageModel
        >>> task = LanguageModeling(lambda encoding: LanguageModel(encoding, num_tokens=65, dim=32, depth=1), "alibi")
        >>> task(torch.zeros(2, 16, dtype=torch.int64)).shape
        torch.Size([2, 16, 65])
    """

    extrapolation = "length, tokens"
    extrapolation_metrics = ("loss", "loss_last_quarter")

    def __init__(
        self,
        network: Callable[[EncodingSpec], nn.Module],
        encoding: EncodingSpec,
        lr: float = 1e-3,
        weight_decay: float = 0.05,
        warmup_epochs: float = 5.0,
    ) -> None:
        super().__init__(lr=lr, weight_decay=weight_decay, warmup_epochs=warmup_epochs)
        self.network = network(encoding)
        self.val_loss = MeanMetric()

    def forward(self, tokens: Tensor, document_ids: Tensor | None = None) -> Tensor:
        """Logits (B, N, num_tokens) of tokens (B, N)."""
        return self.network(tokens) if document_ids is None else self.network(tokens, document_ids=document_ids)

    def logits(self, batch: tuple[Tensor, ...]) -> Tensor:
        """The logits of a batch, (B, N, num_tokens)."""
        tokens, _, *document_ids = batch
        return self(tokens, *document_ids)

    def targets(self, batch: tuple[Tensor, ...]) -> Tensor:
        """The targets of a batch, (B, N)."""
        return batch[1]

    def losses(self, batch: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Tensor]:
        """The loss of each target, 0 where it does not count; which do, as 0 and 1; and the logits."""
        logits, targets = self.logits(batch), self.targets(batch)
        losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="none")
        return losses.view(targets.shape), (targets != IGNORED).to(losses.dtype), logits

    def scores(self, batch: tuple[Tensor, ...]) -> dict[str, tuple[Tensor, Tensor]]:
        """What is measured of a batch at any length: means, and the weights that they have in the mean of all."""
        losses, counted, _ = self.losses(batch)
        last = slice(losses.shape[1] - quarter(losses.shape[1]), None)
        return {"loss": mean(losses, counted), "loss_last_quarter": mean(losses[:, last], counted[:, last])}

    def check_batch(self, batch: tuple[Tensor, ...]) -> None:
        """Raises ValueError where the network does not take the tokens, or does not give logits of the targets."""
        logits, targets = self.logits(tuple(part[:2] for part in batch)), self.targets(batch)
        expected = targets[:2].shape
        if logits.ndim != 3 or logits.shape[:2] != expected:
            raise ValueError(
                f"the network gives logits {tuple(logits.shape)} for targets {tuple(expected)}, expected "
                f"({', '.join(map(str, expected))}, num_tokens)"
            )
        counted = targets[targets != IGNORED]
        if counted.numel() and not 0 <= int(counted.min()) <= int(counted.max()) < logits.shape[-1]:
            raise ValueError(
                f"the network has {logits.shape[-1]} tokens, and the data has targets from {int(counted.min())} to "
                f"{int(counted.max())}; give --model.init_args.network.init_args.num_tokens {int(counted.max()) + 1}"
            )

    def size_of(self, batch: tuple[Tensor, ...]) -> int:
        """The length of the windows, in tokens."""
        return batch[0].shape[1]

    def on_train_start(self) -> None:
        """Sets the rate of the first step, and tells of tables that are not reached."""
        super().on_train_start()
        data: Any = getattr(self.trainer, "datamodule", None)
        if data is not None and self.trainer.is_global_zero:
            batch = next(iter(data.val_dataloader()))
            length = self.targets(batch).shape[1]
            for line in unreached(self.network, length, getattr(self.network, "window", None)):
                print(line, file=sys.stderr, flush=True)

    def training_step(self, batch: tuple[Tensor, ...], batch_idx: int) -> Tensor:
        """The mean loss of a batch."""
        losses, counted, _ = self.losses(batch)
        loss, _ = mean(losses, counted)
        self.log("train/loss", loss, prog_bar=True, sync_dist=True)
        return loss

    def validation_step(self, batch: tuple[Tensor, ...], batch_idx: int) -> None:
        """Collects val/loss."""
        losses, counted, _ = self.losses(batch)
        self.val_loss.update(*mean(losses, counted))
        self.log("val/loss", self.val_loss, prog_bar=True, batch_size=len(losses))

    def scores_at_own_length(self, scores: dict[str, tuple[Tensor, Tensor]]) -> dict[str, tuple[Tensor, Tensor]]:
        """The perplexity too."""
        return {**scores, "perplexity": scores["loss"]}

    def metric(self, name: str) -> MeanMetric:
        """What collects a number of the test: its mean, or the perplexity."""
        return Perplexity() if name == "perplexity" else MeanMetric()

    def predict_step(self, batch: tuple[Tensor, ...], batch_idx: int) -> dict[str, Tensor]:
        """The mean loss of each window, (B,), in nats per token."""
        losses, counted, _ = self.losses(batch)
        return {"loss": losses.sum(1) / counted.sum(1).clamp(min=1)}


def mean(losses: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of the losses that count, 0 where none does, and their number."""
    number = counted.sum()
    return losses.sum() / number.clamp(min=1), number
