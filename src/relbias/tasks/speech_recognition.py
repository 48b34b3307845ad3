"""Labels of a clip in their order, by connectionist temporal classification."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import MeanMetric

from relbias._extras import extra
from relbias.encodings import EncodingSpec
from relbias.tasks.at_lengths import AtLengths

Batch: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor]


class SpeechRecognition(AtLengths):
    """The loss of CTC and the error rate of greedy decoding (https://dl.acm.org/doi/10.1145/1143844.1143891).

    A batch is (features (B, T, F), lengths (B,), targets (B, S), target_lengths (B,)): the labels of clip b, integers
    from 0, are its first target_lengths[b] targets; the others are not looked at. The last output of the network is the
    blank. The loss is in nats per label; that of a clip with too few tokens for its labels counts as 0.

    The error rate is the edit distance between the labels and the decoded ones, over the number of labels, so that it
    may exceed 1. Logs train/loss per step, val/loss and val/error_rate per epoch, and test/error_rate and test/loss;
    for the `test_lengths` of the data test/error_rate_LENGTH and test/loss_LENGTH, see
    :class:`~relbias.tasks.at_lengths.AtLengths`. All are means over the labels of all processes.

    Args:
        network: builds the network from the encoding; it maps features (B, T, F) and lengths (B,) to outputs
            (B, N, O) and their lengths (B,).
        encoding: the one encoding key: a name, a mapping from relations to names or callables, or a callable
            (number of heads, head size, relation) -> Encoding.
        lr: the highest learning rate.
        weight_decay: see :class:`~relbias.tasks.base.Task`.
        warmup_epochs: see :class:`~relbias.tasks.base.Task`.

    Example:
        >>> from relbias.models import SpeechTransformer
        >>> task = SpeechRecognition(lambda encoding: SpeechTransformer(encoding, num_outputs=11), "rope")
        >>> batch = torch.randn(1, 20, 40), torch.tensor([20]), torch.tensor([[3, 7]]), torch.tensor([2])
        >>> sorted(task.scores(batch))
        ['error_rate', 'loss']
    """

    extrapolation = "length of the string, labels"
    extrapolation_metrics = ("error_rate", "loss")

    def __init__(
        self,
        network: Callable[[EncodingSpec], nn.Module],
        encoding: EncodingSpec,
        lr: float = 1e-3,
        weight_decay: float = 0.05,
        warmup_epochs: float = 1.0,
    ) -> None:
        super().__init__(lr=lr, weight_decay=weight_decay, warmup_epochs=warmup_epochs)
        self.network = network(encoding)
        self.val_loss = MeanMetric()
        self.val_error_rate = MeanMetric()

    def forward(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs (B, N, O) of features (B, T, F), and how many of the N each clip has, (B,)."""
        return self.network(features, lengths)

    def losses(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """The loss of each clip, (B,), in nats; and the outputs and their lengths."""
        features, lengths, targets, target_lengths = batch
        outputs, output_lengths = self(features, lengths)
        log_probabilities = outputs.float().log_softmax(-1).transpose(0, 1)
        return (
            F.ctc_loss(
                log_probabilities,
                targets,
                output_lengths,
                target_lengths,
                blank=outputs.shape[-1] - 1,
                reduction="none",
                zero_infinity=True,
            ),
            outputs,
            output_lengths,
        )

    def scores(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        """The error rate and the loss of a batch, and its number of labels, their weight."""
        losses, outputs, output_lengths = self.losses(batch)
        _, _, targets, target_lengths = batch
        wanted = labels_of(targets, target_lengths)
        labels = target_lengths.sum()
        edits = _edits(wanted, greedy(outputs, output_lengths)).sum().to(labels)
        return {"error_rate": (edits / labels.clamp(min=1), labels), "loss": (per_label(losses, labels), labels)}

    def check_batch(self, batch: Batch) -> None:
        """Raises ValueError where the network does not give outputs of tokens, or knows fewer labels than the data."""
        _, _, targets, target_lengths = batch
        found = self(batch[0][:2], batch[1][:2])
        if not isinstance(found, tuple) or found[0].ndim != 3:
            given = "one tensor" if isinstance(found, Tensor) else f"outputs {tuple(found[0].shape)}"
            raise ValueError(f"the network gives {given}, expected outputs (B, N, O) and their lengths (B,)")
        known = found[0].shape[-1] - 1
        labels = [label for row in labels_of(targets, target_lengths) for label in row]
        if labels and not 0 <= min(labels) <= max(labels) < known:
            raise ValueError(
                f"the network has {known} labels and the blank, and the data has labels from {min(labels)} to "
                f"{max(labels)}; give --model.init_args.network.init_args.num_outputs {max(labels) + 2}"
            )

    def size_of(self, batch: Batch) -> int:
        """The most labels that a clip has."""
        return int(batch[3].max())

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """The loss of a batch, in nats per label."""
        losses, _, _ = self.losses(batch)
        loss = per_label(losses, batch[3].sum())
        self.log("train/loss", loss, prog_bar=True, sync_dist=True)
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Collects val/loss and val/error_rate."""
        scores = self.scores(batch)
        for name, metric in (("loss", self.val_loss), ("error_rate", self.val_error_rate)):
            metric.update(*scores[name])
            self.log(f"val/{name}", metric, prog_bar=True, batch_size=len(batch[3]))

    def predict_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor | list[str]]:
        """The given labels of each clip and the decoded ones, with spaces between them, and the edits that they need.

        Two lists of B strings, such as "3 7", and (B,) int64.
        """
        features, lengths, targets, target_lengths = batch
        wanted, found = labels_of(targets, target_lengths), greedy(*self(features, lengths))
        written = ([" ".join(map(str, labels)) for labels in rows] for rows in (wanted, found))
        return {**dict(zip(("labels", "decoded"), written, strict=True)), "edits": _edits(wanted, found)}


def per_label(losses: Tensor, labels: Tensor) -> Tensor:
    """The sum of the losses of clips over the number of their labels; the sum itself where they have none.

    Example:
        >>> per_label(torch.tensor([3.0, 5.0]), torch.tensor(4)), per_label(torch.tensor([3.0]), torch.tensor(0))
        (tensor(2.), tensor(3.))
    """
    return losses.sum() / labels.clamp(min=1)


def greedy(outputs: Tensor, lengths: Tensor) -> list[list[int]]:
    """The labels of each clip: the likeliest output of each token, runs of the same one once, without blanks.

    Args:
        outputs: (B, N, O); the last output is the blank.
        lengths: (B,) integers, how many of the N tokens a clip has.

    Example:
        >>> outputs = torch.eye(3)[torch.tensor([[0, 0, 2, 0, 1, 1], [1, 2, 2, 0, 0, 0]])]
        >>> greedy(outputs, torch.tensor([6, 3]))
        [[0, 0, 1], [1]]
    """
    blank = outputs.shape[-1] - 1
    runs = [torch.unique_consecutive(row).tolist() for row in _rows(outputs.argmax(-1), lengths)]
    return [[label for label in run if label != blank] for run in runs]


def labels_of(targets: Tensor, target_lengths: Tensor) -> list[list[int]]:
    """The labels of each clip, as lists.

    Example:
        >>> labels_of(torch.tensor([[3, 7], [1, -1]]), torch.tensor([2, 1]))
        [[3, 7], [1]]
    """
    return [row.tolist() for row in _rows(targets, target_lengths)]


def _rows(rows: Tensor, lengths: Tensor) -> list[Tensor]:
    return [row[:length] for row, length in zip(rows.cpu(), lengths.tolist(), strict=True)]


def _edits(wanted: list[list[int]], found: list[list[int]]) -> Tensor:
    """The edit distance of each clip, (B,) int64."""
    return torch.tensor(list(map(edit_distance, wanted, found)), dtype=torch.int64)


def edit_distance(wanted: list[int], found: list[int]) -> int:
    """How many labels must be put in, taken out or replaced to make one list the other.

    Example:
        >>> edit_distance([3, 7, 7], [3, 7, 1, 2])
        2
    """
    with extra("audio"):
        from torchaudio.functional import edit_distance as distance
    return distance(wanted, found)
