"""Classification of clips by any network that takes an encoding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics.classification import MulticlassAccuracy

from relbias.encodings import Encoding, EncodingSpec
from relbias.encodings.resize import Unit
from relbias.tasks.at_lengths import AtLengths

Batch = tuple[Tensor, Tensor, Tensor]


class AudioClassification(AtLengths):
    """Cross entropy on (features (B, T, F), lengths (B,), labels (B,)).

    Logs train/loss per step, val/loss and val/accuracy per epoch, and of the first test dataloader test/accuracy. Where
    the data module has `test_lengths`, its last test dataloaders have clips of these lengths, and test/accuracy_LENGTH
    is that of the same network. A length that the network refuses, as one with learned positions does, is told and left
    out. All are over the samples of all processes.

    Args:
        network: builds the network from the encoding; the network maps features and lengths to logits (B, num_classes).
            One that gives logits of frames (B, T', num_classes) and their lengths (B,) is taken by the mean of each
            clip's frames.
        encoding: the one encoding key: a name, a mapping from relations to names or callables, or a callable
            (number of heads, head size, relation) -> Encoding.
        num_classes: number of classes; labels are integers from 0 to num_classes - 1.
        lr: the highest learning rate.
        weight_decay: see :class:`~relbias.tasks.base.Task`.
        warmup_epochs: see :class:`~relbias.tasks.base.Task`.
        label_smoothing: share of the target spread evenly over the classes, in the training loss only, 0 to 1.

    Raises:
        ValueError: fewer than two classes, or a label smoothing outside [0, 1).

    Example:
        >>> from functools import partial
        >>> from relbias.models import SpectrogramTransformer
        >>> network = partial(SpectrogramTransformer, num_classes=10, num_mels=32, num_frames=64, patch_size=(4, 8),
        ...                   dim=48, depth=1, num_heads=4)
        >>> AudioClassification(network, "alibi")(torch.zeros(2, 64, 32), torch.tensor([64, 30])).shape
        torch.Size([2, 10])
    """

    extrapolation = "length, frames"

    def __init__(
        self,
        network: Callable[[EncodingSpec], nn.Module],
        encoding: EncodingSpec,
        num_classes: int = 10,
        lr: float = 1e-3,
        weight_decay: float = 0.05,
        warmup_epochs: float = 5.0,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(lr=lr, weight_decay=weight_decay, warmup_epochs=warmup_epochs)
        if num_classes < 2:
            raise ValueError(f"num_classes is {num_classes}, expected at least 2")
        if not 0.0 <= label_smoothing < 1.0:
            raise ValueError(f"label_smoothing is {label_smoothing}, expected a number in [0, 1)")
        self.network = network(encoding)
        self.num_classes = num_classes
        self.label_smoothing = label_smoothing
        self.val_accuracy = MulticlassAccuracy(num_classes, average="micro")

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Logits (B, num_classes) of features (B, T, F) with lengths (B,)."""
        found = self.network(features, lengths)
        return found if isinstance(found, Tensor) else mean_of_frames(*found)

    def check_batch(self, batch: Batch) -> None:
        """Raises ValueError where lengths, labels or the network's logits are not what they should be."""
        features, lengths, labels = batch
        if lengths.min() < 1 or lengths.max() > features.shape[1]:
            raise ValueError(
                f"the data has lengths from {lengths.min()} to {lengths.max()}, expected 1 to {features.shape[1]}, the "
                "frames of the batch"
            )
        expected = (len(labels[:2]), self.num_classes)
        logits = self(features[:2], lengths[:2])
        if logits.shape != expected:
            raise ValueError(
                f"num_classes is {self.num_classes}, and the network maps features {tuple(features[:2].shape)} to "
                f"{tuple(logits.shape)}, expected {expected}; give both the same num_classes"
            )
        if labels.min() < 0 or labels.max() >= self.num_classes:
            raise ValueError(
                f"num_classes is {self.num_classes}, and the data has labels from {labels.min()} to {labels.max()}, "
                f"expected 0 to {self.num_classes - 1}"
            )

    def size_of(self, batch: Batch) -> int:
        """T, the frames of a batch."""
        return batch[0].shape[1]

    def prepare_for_size(self, size: int, unit: Unit | None = None) -> None:
        """Calls the network's own `prepare_for_size`, which takes a length in frames; see the base class."""
        network: Any = self.network
        if not hasattr(network, "prepare_for_size"):
            raise ValueError(f"{type(network).__name__} has no prepare_for_size(size, unit)")
        if unit is None and any(isinstance(part, Encoding) and part.fixed_size for part in network.modules()):
            raise ValueError("tables are resized where --resize patch or --resize image asks for it")
        network.prepare_for_size(size, unit or "patch")

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """The smoothed cross entropy of a batch."""
        features, lengths, labels = batch
        loss = F.cross_entropy(self(features, lengths), labels, label_smoothing=self.label_smoothing)
        self.log("train/loss", loss, prog_bar=True, sync_dist=True)
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Collects val/loss and val/accuracy."""
        features, lengths, labels = batch
        logits = self(features, lengths)
        self.val_accuracy(logits, labels)
        loss = F.cross_entropy(logits, labels)
        self.log("val/loss", loss, prog_bar=True, batch_size=len(labels), sync_dist=True)
        self.log("val/accuracy", self.val_accuracy, prog_bar=True, batch_size=len(labels))

    def scores(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        """The accuracy of a batch and its number of clips."""
        features, lengths, labels = batch
        right = (self(features, lengths).argmax(1) == labels).float()
        return {"accuracy": (right.mean(), torch.tensor(len(right), device=right.device))}

    def predict_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        """The likeliest class, (B,) integer, its probability, (B,), and the given label, (B,) integer."""
        features, lengths, labels = batch
        probability, prediction = self(features, lengths).softmax(dim=-1).max(dim=-1)
        return {"label": labels, "prediction": prediction, "probability": probability}


def mean_of_frames(logits: Tensor, lengths: Tensor) -> Tensor:
    """The mean of each clip's frames.

    Args:
        logits: (B, T, num_classes).
        lengths: (B,) integers, from 1.

    Returns:
        (B, num_classes).

    Example:
        >>> mean_of_frames(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([2]))
        tensor([[2.]])
    """
    inside = (torch.arange(logits.shape[1], device=logits.device) < lengths[:, None])[..., None]
    return logits.masked_fill(~inside, 0).sum(1) / inside.sum(1).clamp(min=1)
