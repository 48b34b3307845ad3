"""Real handwritten digits, small enough to train on a processor, with test images that move."""

import math
from collections.abc import Sequence
from functools import partial
from itertools import product

import numpy as np
import torch
from lightning.pytorch import LightningDataModule
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, default_collate

from relbias.data.order import draws, shuffled
from relbias.data.sizes import check_sizes
from relbias.relations.base import check_size

DIGIT = 8  # pixels; the side of a digit
CANVAS = 16  # pixels; the side of the image it lies on
_NUM_VAL, _NUM_TEST = 180, 360  # a tenth and a fifth of the 1797 digits
_SPLIT_SEED = 0
# Mean and standard deviation of all pixels (0 to 16) on the canvas, background included.
_MEAN, _STD = 1.221, 3.677


class Digits(LightningDataModule):
    """The 1797 digits of scikit-learn, 8 x 8 pixels, on a canvas of 16 x 16 (E. Alpaydin and C. Kaynak, UCI, 1998).

    Training and validation digits lie in the centre. The test dataloaders are: the test digits in the centre,
    and the same digits moved by every (dy, dx) but (0, 0) with dy and dx in {-test_shift, ..., -shift_step, 0,
    shift_step, ..., test_shift}; and one more for each of `test_sizes`, the centred images scaled to that size, canvas
    and digit together. The split is stratified by class, always the same, and does not depend on the seed: 1257 digits
    for training, 180 for validation, 360 for the test. Images are (1, 16, 16) float32 with mean 0 and standard
    deviation 1 over the data set; labels are int64, 0 to 9.

    Args:
        batch_size: images per batch.
        augment: share of the training images, 0 to 1, that are rotated and scaled about the centre of the canvas, drawn
            anew for each image in each epoch; the others stay as sharp as the test images are. None is ever translated,
            so that the moved test images stay new.
        degrees: greatest rotation to either side, in degrees.
        scale: smallest and greatest factor of the size.
        test_shift: greatest shift of the moved test images, in pixels, at most 4; 0 gives no moved images.
        shift_step: step of the shifts, in pixels; it divides test_shift.
        test_sizes: other sides of the images that are tested too, in pixels.
        num_workers: processes that load batches.

    Attributes:
        image_size: the side of the images, in pixels.

    Raises:
        ValueError: an argument out of its range, such as a shift that would push the digit off the canvas.

    Example:
        >>> data = Digits(batch_size=32)
        >>> data.setup()
        >>> images, labels = next(iter(data.train_dataloader()))
        >>> images.shape, len(data.train), len(data.test), len(data.test_moved)
        (torch.Size([32, 1, 16, 16]), 1257, 360, 8640)
    """

    image_size = CANVAS

    def __init__(
        self,
        batch_size: int = 64,
        augment: float = 0.75,
        degrees: float = 20.0,
        scale: tuple[float, float] = (0.8, 1.2),
        test_shift: int = 4,
        shift_step: int = 2,
        test_sizes: Sequence[int] = (),
        num_workers: int = 0,
    ) -> None:
        super().__init__()
        margin = (CANVAS - DIGIT) // 2
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}, expected at least 1")
        if not 0 <= augment <= 1:
            raise ValueError(f"augment is {augment}, expected a share from 0 to 1")
        if not (math.isfinite(degrees) and degrees >= 0):
            raise ValueError(f"degrees is {degrees}, expected a finite number of at least 0")
        if not 0 < scale[0] <= scale[1] < math.inf:
            raise ValueError(f"scale is {tuple(scale)}, expected (smallest, greatest) with 0 < smallest <= greatest")
        if not 0 <= test_shift <= margin:
            raise ValueError(
                f"test_shift is {test_shift}, expected 0 to {margin}: a greater shift pushes the digit off the canvas"
            )
        if shift_step < 1 or test_shift % shift_step:
            raise ValueError(f"shift_step is {shift_step}, expected a divisor of test_shift, which is {test_shift}")
        check_sizes(test_sizes, CANVAS)
        if num_workers < 0:
            raise ValueError(f"num_workers is {num_workers}, expected at least 0")
        self.batch_size = batch_size
        self.augment = augment
        self.degrees = degrees
        self.scale = (scale[0], scale[1])
        self.shifts = [
            shift for shift in product(range(-test_shift, test_shift + 1, shift_step), repeat=2) if shift != (0, 0)
        ]
        self.test_sizes = list(test_sizes)
        self.num_workers = num_workers

    def setup(self, stage: str | None = None) -> None:
        """Loads, checks and splits the digits; the data set comes with scikit-learn, nothing is downloaded."""
        digits, labels = load_digits(return_X_y=True)
        if digits.shape != (1797, DIGIT**2) or not ((digits >= 0) & (digits <= 16)).all():
            raise ValueError(
                f"scikit-learn gave digits of shape {digits.shape}, expected (1797, 64) with values 0 to 16"
            )
        rest, test = train_test_split(
            np.arange(len(labels)), test_size=_NUM_TEST, random_state=_SPLIT_SEED, stratify=labels
        )
        train, val = train_test_split(rest, test_size=_NUM_VAL, random_state=_SPLIT_SEED, stratify=labels[rest])
        pixels = torch.from_numpy(digits.astype(np.float32)).view(-1, 1, DIGIT, DIGIT)
        classes = torch.from_numpy(labels.astype(np.int64))
        self.train, self.val, self.test = (
            TensorDataset(on_canvas(pixels[part]), classes[part]) for part in (train, val, test)
        )
        moved = [on_canvas(pixels[test], dy, dx) for dy, dx in self.shifts] or [torch.empty(0, 1, CANVAS, CANVAS)]
        self.test_moved = TensorDataset(torch.cat(moved), classes[test].repeat(len(self.shifts)))

    def train_dataloader(self) -> DataLoader:
        """Training batches in the order of :func:`~relbias.data.order.shuffled`, augmented where asked for."""
        sampler = shuffled(self.train, self.trainer)
        return DataLoader(
            dataset=TensorDataset(*self.train.tensors, torch.arange(len(self.train))),
            batch_size=self.batch_size,
            sampler=sampler,
            num_workers=self.num_workers,
            collate_fn=partial(self._augmented, sampler),
        )

    def val_dataloader(self) -> DataLoader:
        """Centred validation digits."""
        return self._in_order(self.val)

    def test_dataloader(self) -> list[DataLoader]:
        """Centred test digits, the moved ones where there are any, and the centred ones at each of `test_sizes`."""
        own = [self._in_order(part) for part in (self.test, self.test_moved) if len(part)]
        return own + [self.test_dataloader_at(size) for size in self.test_sizes]

    def test_dataloader_at(self, size: int) -> DataLoader:
        """The centred test digits with their canvas at another size, bicubic, antialiased where smaller.

        Args:
            size: the side of the images, in pixels.

        Returns:
            Batches of (B, 1, size, size) float32 and labels (B,).
        """
        check_size("size", size, 1)
        images, labels = self.test.tensors
        scaled = F.interpolate(images, size=(size, size), mode="bicubic", antialias=True)
        return self._in_order(TensorDataset(images if size == CANVAS else scaled, labels))

    def predict_dataloader(self) -> DataLoader:
        """Centred test digits."""
        return self._in_order(self.test)

    def _in_order(self, dataset: TensorDataset) -> DataLoader:
        return DataLoader(dataset=dataset, batch_size=max(self.batch_size, 256), num_workers=self.num_workers)

    def _augmented(self, sampler: DistributedSampler, samples: list[tuple[Tensor, ...]]) -> tuple[Tensor, Tensor]:
        images, labels, positions = default_collate(samples)
        if not self.augment:
            return images, labels
        chosen, angle, factor = draws(sampler, positions, 3).unbind(-1)
        smallest, greatest = self.scale
        augmented = rotate_and_scale(images, self.degrees * (2 * angle - 1), smallest + (greatest - smallest) * factor)
        return torch.where((chosen < self.augment)[:, None, None, None], augmented, images), labels


def on_canvas(digits: Tensor, dy: int = 0, dx: int = 0) -> Tensor:
    """Lays digits on the canvas, moved from its centre, and scales their values.

    Args:
        digits: (B, 1, 8, 8), values 0 to 16.
        dy: shift downwards in pixels, -4 to 4.
        dx: shift to the right in pixels, -4 to 4.

    Returns:
        (B, 1, 16, 16); over the data set the mean is 0 and the standard deviation 1.

    Example:
        >>> canvas = on_canvas(torch.ones(1, 1, 8, 8), dy=4, dx=-4)
        >>> bool((canvas[0, 0, 8:, :8] > canvas[0, 0, 0, 0]).all())
        True
    """
    top = (CANVAS - DIGIT) // 2 + dy
    left = (CANVAS - DIGIT) // 2 + dx
    padded = F.pad(digits, (left, CANVAS - DIGIT - left, top, CANVAS - DIGIT - top))
    return (padded - _MEAN) / _STD


def rotate_and_scale(images: Tensor, degrees: Tensor, factors: Tensor) -> Tensor:
    """Rotates and scales each image about its centre, bicubically; nothing is translated.

    Args:
        images: (B, C, H, W).
        degrees: (B,), the angle of each image, counterclockwise where positive.
        factors: (B,), the factor of each image's size.

    Returns:
        (B, C, H, W); what comes in from outside repeats the border.

    Example:
        >>> image = torch.rand(1, 1, 4, 4)
        >>> torch.allclose(rotate_and_scale(image, torch.zeros(1), torch.ones(1)), image, atol=1e-5)
        True
    """
    angle = degrees.deg2rad()
    cos, sin = angle.cos() / factors, angle.sin() / factors
    zero = torch.zeros_like(cos)
    matrix = torch.stack((cos, -sin, zero, sin, cos, zero), dim=-1).view(-1, 2, 3)
    grid = F.affine_grid(matrix, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode="bicubic", padding_mode="border", align_corners=False)
