"""CIFAR-10: 60,000 colour images of 32 x 32 pixels in ten classes."""

from collections.abc import Sequence
from typing import Any

import torch
from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader, Subset

from relbias._extras import extra
from relbias.data.images import batches, split, training_batches
from relbias.data.sizes import check_sizes
from relbias.relations.base import check_size

with extra("vision"):
    from torchvision import datasets
    from torchvision.transforms import InterpolationMode, v2

SIZE = 32  # pixels; the side of an image
_VAL_SHARE, _SPLIT_SEED = 0.1, 0
# Of the pixels of the 50,000 training images, red, green and blue, from 0 to 1.
_MEAN, _STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


class CIFAR10(LightningDataModule):
    """CIFAR-10 (A. Krizhevsky 2009, https://www.cs.toronto.edu/~kriz/cifar.html), read by torchvision.

    A tenth of the 50,000 training images of each class is for validation, always the same, whatever the seed; the test
    is that of the data set, 10,000 images, followed by a dataloader for each of `test_sizes` with the same images
    scaled. Images are (3, 32, 32) float32, normalised by mean and standard deviation of each colour; labels are int64.

    Args:
        root: the folder that holds cifar-10-batches-py.
        download: whether to fetch it, 170 MB, where it is missing.
        batch_size: images per batch.
        augment: whether training images are cropped at random, after 4 pixels of padding, and flipped at random, drawn
            anew for each image in each epoch.
        test_sizes: other sides of the images that are tested too, in pixels.
        num_workers: processes that load batches.

    Attributes:
        image_size: the side of the images, in pixels.
        classes: the names of the classes, in the order of the labels.

    Raises:
        ValueError: an argument out of its range.

    Example:
        >>> CIFAR10(root="images").classes[:3]
        ('airplane', 'automobile', 'bird')
    """

    image_size = SIZE
    classes = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

    def __init__(
        self,
        root: str = "data",
        download: bool = False,
        batch_size: int = 128,
        augment: bool = True,
        test_sizes: Sequence[int] = (),
        num_workers: int = 0,
    ) -> None:
        super().__init__()
        check_size("batch_size", batch_size, 1)
        check_size("num_workers", num_workers, 0)
        check_sizes(test_sizes, SIZE)
        self.root = root
        self.download = download
        self.batch_size = batch_size
        self.augment = augment
        self.test_sizes = list(test_sizes)
        self.num_workers = num_workers

    def prepare_data(self) -> None:
        """Fetches the data set where it is missing and that was asked for.

        Raises:
            ValueError: it is missing or damaged and is not to be fetched, or cannot be.
        """
        try:
            self._part(train=False)
        except ValueError:
            if not self.download:
                raise
            try:
                datasets.CIFAR10(self.root, download=True)
            except (OSError, RuntimeError) as error:
                raise ValueError(
                    f"CIFAR-10 cannot be fetched: {' '.join(str(error).split())}; put {datasets.CIFAR10.filename} from "
                    f"{datasets.CIFAR10.url} into {self.root} by hand"
                ) from None

    def setup(self, stage: str | None = None) -> None:
        """Reads the images and splits those for training."""
        train = self._part(train=True)
        chosen, held_out, _ = split(train.targets, self.classes, _VAL_SHARE, 0.0, _SPLIT_SEED)
        self.train, self.val = Subset(train, chosen), Subset(train, held_out)
        self.test = self._part(train=False)

    def train_dataloader(self) -> DataLoader:
        """Training batches in the order of :func:`~relbias.data.order.shuffled`, augmented where asked for."""
        random: list[Any] = [v2.RandomCrop(SIZE, padding=4), v2.RandomHorizontalFlip()] if self.augment else []
        transform = v2.Compose([*random, *_to_tensor()])
        return training_batches(self.train, transform, self.batch_size, self.num_workers, self.trainer)

    def val_dataloader(self) -> DataLoader:
        """Validation images, as they are."""
        return batches(self.val, v2.Compose(_to_tensor()), self.batch_size, self.num_workers)

    def test_dataloader(self) -> list[DataLoader]:
        """Test images, then the same at each of `test_sizes`."""
        return [self.test_dataloader_at(size) for size in (SIZE, *self.test_sizes)]

    def test_dataloader_at(self, size: int) -> DataLoader:
        """Test images scaled to another size, bicubic, antialiased where smaller.

        Args:
            size: the side of the images, in pixels.

        Returns:
            Batches of (B, 3, size, size) float32 and labels (B,).
        """
        check_size("size", size, 1)
        scale = v2.Resize((size, size), InterpolationMode.BICUBIC, antialias=True)
        transform = v2.Compose([*([] if size == SIZE else [scale]), *_to_tensor()])
        return batches(self.test, transform, self.batch_size, self.num_workers)

    def predict_dataloader(self) -> DataLoader:
        """Test images."""
        return self.test_dataloader_at(SIZE)

    def _part(self, train: bool) -> datasets.CIFAR10:
        try:
            return datasets.CIFAR10(self.root, train=train)
        except RuntimeError:
            raise ValueError(
                f"{self.root} does not hold CIFAR-10, or its files are damaged; download=True fetches it "
                "(--data.init_args.download true)"
            ) from None


def _to_tensor() -> list[Any]:
    return [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(_MEAN, _STD)]
