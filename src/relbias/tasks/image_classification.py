"""Classification of images by any network that takes an encoding."""

import copy
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics.classification import MulticlassAccuracy

from relbias.encodings import Encoding, EncodingSpec
from relbias.encodings.resize import Unit
from relbias.tasks.base import Task


class ImageClassification(Task):
    """Cross entropy on (images, labels); accuracy on centred and on moved test images.

    Logs train/loss per step, val/loss and val/accuracy per epoch, test/accuracy from the first test dataloader and,
    where the data has a second one, test/accuracy_moved from it; all over the samples of all processes. Where the data
    module has `test_sizes`, its last test dataloaders hold images of these sizes, and test/accuracy_SIZE is that of a
    copy of the network after `prepare_for_size(SIZE)`.

    Args:
        network: builds the network from the encoding; the network maps images (B, C, H, W), float, to logits
            (B, num_classes).
        encoding: the one encoding key: a name, a mapping from relations to names or callables, or a callable
            (number of heads, head size, relation) -> Encoding.
        num_classes: number of classes; labels are integers (B,) from 0 to num_classes - 1.
        lr: the highest learning rate.
        weight_decay: see :class:`~relbias.tasks.base.Task`.
        warmup_epochs: see :class:`~relbias.tasks.base.Task`.
        label_smoothing: share of the target spread evenly over the classes, in the training loss only, 0 to 1.

    Raises:
        ValueError: fewer than two classes, or a label smoothing outside [0, 1).

    Example:
        >>> import torch
        >>> task = ImageClassification(lambda encoding: nn.Sequential(nn.Flatten(), nn.LazyLinear(10)), "none")
        >>> task(torch.zeros(2, 1, 16, 16)).shape
        torch.Size([2, 10])
    """

    attention_figure = "image"
    extrapolation = "image side, pixels"

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

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, num_classes) of images (B, C, H, W)."""
        return self.network(images)

    def check_batch(self, batch: tuple[Tensor, Tensor]) -> None:
        """Raises ValueError where the network's logits or the labels of (images, labels) are not num_classes."""
        images, labels = batch
        images, num_classes = images[:2], self.num_classes
        logits = self(images)
        if logits.shape != (len(images), num_classes):
            raise ValueError(
                f"num_classes is {num_classes}, and the network maps images {tuple(images.shape)} to "
                f"{tuple(logits.shape)}, expected {(len(images), num_classes)}; give both the same num_classes"
            )
        if labels.min() < 0 or labels.max() >= num_classes:
            raise ValueError(
                f"num_classes is {num_classes}, and the data has labels from {labels.min()} to {labels.max()}, "
                f"expected 0 to {num_classes - 1}"
            )

    def size_of(self, batch: tuple[Tensor, Tensor]) -> int:
        """The side of the images, in pixels, which must be square."""
        height, width = batch[0].shape[-2:]
        if height != width:
            raise ValueError(f"the images are {height} x {width} pixels, expected squares")
        return height

    def check_size(self, size: int) -> None:
        """Raises ValueError where the network cuts images into patches that do not divide the side."""
        patches = _patch_embedding(self.network)
        if patches is not None and size % _side(patches) and not getattr(patches, "dynamic_img_pad", False):
            raise ValueError(
                f"an image side of {size} pixels is no multiple of the network's patch size {_side(patches)}"
            )

    def prepare_for_size(self, size: int, unit: Unit | None = None) -> None:
        """Calls the network's own `prepare_for_size`, which takes a side in pixels; see the base class."""
        network: Any = self.network
        if not hasattr(network, "prepare_for_size"):
            raise ValueError(f"{type(network).__name__} has no prepare_for_size(size, unit)")
        if unit is None and any(isinstance(part, Encoding) and part.fixed_size for part in network.modules()):
            raise ValueError("tables are resized where --resize patch or --resize image asks for it")
        network.prepare_for_size(size, unit or "image")

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """The smoothed cross entropy of a batch."""
        images, labels = batch
        loss = F.cross_entropy(self(images), labels, label_smoothing=self.label_smoothing)
        self.log("train/loss", loss, prog_bar=True, sync_dist=True)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Collects val/loss and val/accuracy."""
        images, labels = batch
        logits = self(images)
        self.val_accuracy(logits, labels)
        loss = F.cross_entropy(logits, labels)
        self.log("val/loss", loss, prog_bar=True, batch_size=len(labels), sync_dist=True)
        self.log("val/accuracy", self.val_accuracy, prog_bar=True, batch_size=len(labels))

    def on_test_start(self) -> None:
        """Makes an accuracy for each test dataloader, and a network for those with images of another size."""
        loaders = self.trainer.test_dataloaders
        count = len(loaders) if isinstance(loaders, list | tuple) else 1
        sizes = getattr(getattr(self.trainer, "datamodule", None), "test_sizes", [])
        own = ["test/accuracy", "test/accuracy_moved"][: count - len(sizes)]
        networks = [self.network] * len(own) + [self._network_at(size) for size in sizes]
        self._tested: Any = list(zip([*own, *(f"test/accuracy_{size}" for size in sizes)], networks, strict=True))
        accuracies = [MulticlassAccuracy(self.num_classes, average="micro") for _ in networks]
        self.test_accuracies: Any = nn.ModuleList(accuracies).to(self.device)

    def on_test_end(self) -> None:
        """Forgets them."""
        del self._tested, self.test_accuracies

    def _network_at(self, size: int) -> nn.Module:
        network: Any = copy.deepcopy(self.network)
        if not hasattr(network, "prepare_for_size"):
            raise ValueError(f"test_sizes needs a network with prepare_for_size(size), got {type(network).__name__}")
        network.prepare_for_size(size)
        return network

    def test_step(self, batch: tuple[Tensor, Tensor], batch_idx: int, dataloader_idx: int = 0) -> None:
        """Collects the accuracy of a test dataloader."""
        images, labels = batch
        (name, network), accuracy = self._tested[dataloader_idx], self.test_accuracies[dataloader_idx]
        accuracy(network(images), labels)
        self.log(name, accuracy, on_epoch=True, batch_size=len(labels), add_dataloader_idx=False)

    def predict_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> dict[str, Tensor]:
        """The likeliest class, (B,) integer, its probability, (B,), and the given label, (B,) integer."""
        images, labels = batch
        probability, prediction = self(images).softmax(dim=-1).max(dim=-1)
        return {"label": labels, "prediction": prediction, "probability": probability}


def _patch_embedding(network: nn.Module) -> nn.Module | None:
    """The module that cuts images into patches: a network of this library itself, or timm's patch embedding."""
    return next((module for module in network.modules() if hasattr(module, "patch_size")), None)


def _side(patches: Any) -> int:
    """The side of a patch, in pixels."""
    size = patches.patch_size
    return size if isinstance(size, int) else size[0]
