"""Images in folders named after their classes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader, Subset

from relbias._extras import extra
from relbias.data.images import batches, split, training_batches
from relbias.data.sizes import check_sizes
from relbias.relations.base import check_size

with extra("vision"):
    from PIL import Image
    from timm.data import create_transform
    from torchvision.datasets import DatasetFolder
    from torchvision.datasets.folder import IMG_EXTENSIONS

PARTS = ("train", "val", "test")


class UnreadableImageError(ValueError):
    """An image cannot be read; the message names it.

    Args:
        message: a line; or a traceback that ends with it, which torch gives to the class of an error in a process that
            loads batches.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.rpartition(f"{type(self).__name__}: ")[2].split()))


class ImageFolder(LightningDataModule):
    """A folder with a folder of images for each class, or with such folders for training, validation and test.

    A root with the folders train and val is taken as it stands; without a folder test the images of val are the test
    too. Any other root is that of the classes, and each class is split at random by the shares given. Labels are the
    places of the classes in the order of their names. The network tells how images are prepared: give it by
    :meth:`adapt_to`, as `relbias fit` does. Training images are cropped, scaled and flipped at random by timm, drawn
    anew for each image in each epoch.

    Args:
        root: the folder.
        batch_size: images per batch.
        augment: whether training images are augmented.
        val_share: the share of each class for validation, where there are no folders for the parts.
        test_share: the share of each class for the test, likewise.
        split_seed: of that split, which does not depend on the seed of the training.
        classes: the names of the classes that are expected; None for those that are found. `relbias fit` keeps in the
            run folder what it found, so that a folder that has changed is noticed.
        test_sizes: other sides of square images that are tested too, in pixels.
        num_workers: processes that load batches.

    Attributes:
        classes: the names of the classes, in the order of the labels; those expected before :meth:`setup`.
        image_size: the side of the images, in pixels, once adapted.

    Raises:
        ValueError: an argument out of its range.

    Example:
        >>> ImageFolder("flowers").setup()
        Traceback (most recent call last):
        ...
        ValueError: there is no folder flowers; give one that holds a folder of images for each class
    """

    def __init__(
        self,
        root: str,
        batch_size: int = 64,
        augment: bool = True,
        val_share: float = 0.1,
        test_share: float = 0.1,
        split_seed: int = 0,
        classes: list[str] | None = None,
        test_sizes: Sequence[int] = (),
        num_workers: int = 0,
    ) -> None:
        super().__init__()
        check_size("batch_size", batch_size, 1)
        check_size("split_seed", split_seed, 0)
        check_size("num_workers", num_workers, 0)
        if not (0 < val_share < 1 and 0 < test_share < 1 and val_share + test_share < 1):
            raise ValueError(
                f"val_share is {val_share} and test_share is {test_share}, expected shares above 0, together below 1"
            )
        check_sizes(test_sizes)
        self.root = Path(root)
        self.batch_size = batch_size
        self.augment = augment
        self.shares = (val_share, test_share)
        self.split_seed = split_seed
        self.classes = classes
        self.test_sizes = list(test_sizes)
        self.num_workers = num_workers
        self._config: dict[str, Any] | None = None
        self._num_classes: int | None = None

    def adapt_to(self, task: Any) -> None:
        """Takes from a task how images are prepared for its network, and how many classes it has.

        Args:
            task: with a `network` that has the attribute `data_config`, such as `relbias.models.timm.TimmModel`, and
                with `num_classes`.

        Raises:
            ValueError: the network has no `data_config`, does not take square images, or `test_sizes` has its size.
        """
        network = getattr(task, "network", None)
        config = getattr(network, "data_config", None)
        if config is None:
            raise ValueError(
                f"{type(self).__name__} prepares images as the network's data_config says, and "
                f"{type(network).__name__} has none; give one such as relbias.models.timm.TimmModel"
            )
        _, height, width = config["input_size"]
        if height != width:
            raise ValueError(f"{type(self).__name__} gives square images, and the network takes {height}x{width}")
        check_sizes(self.test_sizes, height)
        self._config, self._num_classes = config, getattr(task, "num_classes", None)

    @property
    def image_size(self) -> int:
        """The side of the images, in pixels."""
        return self._prepared()["input_size"][-1]

    @property
    def found(self) -> dict[str, Any]:
        """The arguments that :meth:`setup` found in the folder, for the configuration of a run."""
        return {} if self.classes is None else {"classes": self.classes}

    def setup(self, stage: str | None = None) -> None:
        """Finds the images and splits them.

        Raises:
            ValueError: there is no such folder, the classes are not those expected or differ between the parts, or a
                class has too few images.
        """
        if not self.root.is_dir():
            raise ValueError(f"there is no folder {self.root}; give one that holds a folder of images for each class")
        parts = [name for name in PARTS if (self.root / name).is_dir()]
        if "train" in parts:
            if "val" not in parts:
                raise ValueError(f"{self.root} has a folder train and none for validation; name that val")
            found = {name: _read(self.root / name) for name in parts}
            classes = found["train"].classes
            for name in parts[1:]:
                _compare(found[name].classes, self.root / name, classes, str(self.root / "train"))
            self.train, self.val, self.test = found["train"], found["val"], found[parts[-1]]
        else:
            whole = _read(self.root)
            classes = whole.classes
            positions = split(whole.targets, classes, *self.shares, self.split_seed)
            self.train, self.val, self.test = (Subset(whole, chosen) for chosen in positions)
        if self.classes is not None:
            _compare(classes, self.root, self.classes, "what is expected")
        if self._num_classes not in (None, len(classes)):
            raise ValueError(
                f"{self.root} has {len(classes)} classes and num_classes is {self._num_classes}; give "
                f"--model.init_args.num_classes {len(classes)} --model.init_args.network.init_args.num_classes "
                f"{len(classes)}"
            )
        self.classes = classes

    def train_dataloader(self) -> DataLoader:
        """Training batches in the order of :func:`~relbias.data.order.shuffled`, augmented where asked for."""
        transform = self._transform(is_training=self.augment)
        return training_batches(self.train, transform, self.batch_size, self.num_workers, self.trainer)

    def val_dataloader(self) -> DataLoader:
        """Validation images, the middle of each."""
        return batches(self.val, self._transform(), self.batch_size, self.num_workers)

    def test_dataloader(self) -> list[DataLoader]:
        """Test images, the middle of each, then the same at each of `test_sizes`."""
        return [self.test_dataloader_at(size) for size in (self.image_size, *self.test_sizes)]

    def test_dataloader_at(self, size: int) -> DataLoader:
        """Test images prepared for another size, the same middle of each.

        Args:
            size: the side of the images, in pixels.

        Returns:
            Batches of (B, C, size, size) float32 and labels (B,).
        """
        check_size("size", size, 1)
        return batches(self.test, self._transform(size=size), self.batch_size, self.num_workers)

    def predict_dataloader(self) -> DataLoader:
        """Test images."""
        return self.test_dataloader_at(self.image_size)

    def _prepared(self) -> dict[str, Any]:
        if self._config is None:
            raise ValueError(f"call adapt_to(task) first: the network of the task tells {type(self).__name__} the size")
        return self._config

    def _transform(self, is_training: bool = False, size: int | None = None) -> Any:
        config = self._prepared()
        colours, *sides = config["input_size"]
        changed: dict[str, Any] = {"input_size": (colours, *(sides if size is None else (size, size)))}
        return create_transform(**{**config, **changed}, is_training=is_training)


def _read(folder: Path) -> DatasetFolder:
    """The images in the folders of a folder.

    Raises:
        ValueError: there are fewer than two classes, or one has no images.
    """
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    if len(names) < 2:
        inside = f"only the folder {names[0]}" if names else "no folder"
        raise ValueError(f"{folder} has {inside}, expected a folder of images for each of at least two classes")
    dataset = DatasetFolder(str(folder), _load, extensions=IMG_EXTENSIONS, allow_empty=True)
    empty = sorted(set(range(len(names))) - set(dataset.targets))
    if empty:
        raise ValueError(
            f"{folder / names[empty[0]]} has no images ({', '.join(IMG_EXTENSIONS)}), and each folder is a class; add "
            "some or remove it"
        )
    return dataset


def _load(path: str) -> Image.Image:
    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:  # all of them Pillow's
        raise UnreadableImageError(f"{path} cannot be read as an image: {error}; replace or remove it") from None


def _compare(classes: Sequence[str], folder: Path, expected: Sequence[str], what: str) -> None:
    if list(classes) != list(expected):
        missing, new = sorted(set(expected) - set(classes)), sorted(set(classes) - set(expected))
        differences = [f"{word} {', '.join(names)}" for word, names in (("lacks", missing), ("adds", new)) if names]
        raise ValueError(f"the classes of {folder} differ from {what}: it {' and '.join(differences) or 'orders them'}")
