from itertools import product

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from relbias.data import Digits
from relbias.data.digits import on_canvas, rotate_and_scale


@pytest.fixture(scope="module")
def data():
    digits = Digits(batch_size=64)
    digits.setup()
    return digits


def _raw(images):
    """Pixels 0 to 16 again, as tuples that can be counted."""
    pixels = images * 3.677 + 1.221
    return [tuple(image.flatten().round().int().tolist()) for image in pixels]


def test_every_digit_stands_in_exactly_one_part(data):
    parts = [data.train.tensors[0], data.val.tensors[0], data.test.tensors[0]]
    assert [len(part) for part in parts] == [1257, 180, 360]
    together = sorted(_raw(torch.cat([part[:, :, 4:12, 4:12] for part in parts])))
    assert together == sorted(tuple(row) for row in load_digits().data.astype(int).tolist())


def test_the_split_is_stratified(data):
    for part in (data.train, data.val, data.test):
        share = torch.bincount(part.tensors[1], minlength=10) / len(part)
        assert (share - 0.1).abs().max() < 0.01


def test_the_split_does_not_depend_on_the_seed(data):
    for seed in (1, 2):
        torch.manual_seed(seed)
        np.random.seed(seed)
        other = Digits()
        other.setup()
        for part in ("train", "val", "test"):
            assert torch.equal(getattr(other, part).tensors[0], getattr(data, part).tensors[0])


def test_the_split_is_this_one(data):
    first = [part.tensors[1][:10].tolist() for part in (data.train, data.val, data.test)]
    assert first == [
        [9, 1, 7, 5, 5, 2, 9, 4, 2, 8],
        [7, 4, 7, 6, 0, 0, 5, 6, 8, 6],
        [7, 6, 3, 7, 7, 3, 2, 8, 9, 3],
    ]


def test_pixels_are_standardised(data):
    images = torch.cat([data.train.tensors[0], data.val.tensors[0], data.test.tensors[0]])
    assert abs(images.mean()) < 1e-3
    assert abs(images.std() - 1) < 1e-3


def test_moved_images_are_exact_shifts_of_all_test_images(data):
    centred, labels = data.test.tensors
    shifts = [shift for shift in product((-4, -2, 0, 2, 4), repeat=2) if shift != (0, 0)]
    moved = data.test_moved.tensors[0].view(24, 360, 1, 16, 16)
    for images, (dy, dx) in zip(moved, shifts, strict=True):
        assert torch.equal(images, centred.roll((dy, dx), (2, 3)))  # the margin is background, so that roll is a shift
    assert torch.equal(data.test_moved.tensors[1], labels.repeat(24))


def test_digits_stay_whole_on_the_canvas(data):
    ink = (data.test_moved.tensors[0] - data.test_moved.tensors[0].amin()).sum((1, 2, 3))
    still = (data.test.tensors[0] - data.test.tensors[0].amin()).sum((1, 2, 3))
    assert torch.allclose(ink.view(24, 360), still.expand(24, 360), rtol=1e-4)


def test_a_smaller_shift_in_single_steps():
    digits = Digits(test_shift=1, shift_step=1)
    assert digits.shifts == [shift for shift in product((-1, 0, 1), repeat=2) if shift != (0, 0)]


def test_no_shift_gives_one_test_dataloader():
    digits = Digits(test_shift=0)
    digits.setup()
    assert len(digits.test_dataloader()) == 1


@pytest.mark.parametrize("size", [8, 12, 16, 20, 32])
def test_another_size_scales_canvas_and_digit_together(data, size):
    (images, labels), *_ = data.test_dataloader_at(size)
    own = data.test.tensors[0][: len(images)]
    assert images.shape[1:] == (1, size, size)
    assert torch.equal(labels, data.test.tensors[1][: len(labels)])
    assert torch.equal(images, own) == (size == 16)
    for axis in (2, 3):  # ink lies at the same part of the image
        centres = []
        for pixels in (images, own):
            ink = (pixels - own.amin()).sum((1, 5 - axis))
            places = (torch.arange(ink.shape[1]) + 0.5) / ink.shape[1]
            centres.append((ink * places).sum(-1) / ink.sum(-1))
        assert (centres[0] - centres[1]).abs().max() < 0.01
    assert torch.allclose(images.mean((1, 2, 3)), own.mean((1, 2, 3)), atol=0.01)


def test_test_sizes_are_the_last_test_dataloaders():
    digits = Digits(test_shift=0, test_sizes=[12, 20])
    digits.setup()
    assert [next(iter(loader))[0].shape[-1] for loader in digits.test_dataloader()] == [16, 12, 20]


def test_augmentation_rotates_counterclockwise_and_scales_about_the_centre():
    image = torch.zeros(1, 1, 16, 16)
    image[..., 7:9, 11] = 1.0  # four pixels to the right of the centre
    larger, turned = rotate_and_scale(image.repeat(2, 1, 1, 1), torch.tensor([0.0, 90.0]), torch.tensor([1.5, 1.0]))
    columns = larger[0].sum(0)
    assert columns.argmax() == 12 or columns.argmax() == 13  # 3.5 * 1.5 = 5.25 to the right of 7.5
    assert turned[0].sum(1).argmax() == 4  # 3.5 above 7.5


def test_augmentation_does_not_translate():
    torch.manual_seed(0)
    images = torch.zeros(500, 1, 16, 16)
    images[..., 6:10, 6:10] = 1.0
    turned = rotate_and_scale(images, torch.empty(500).uniform_(-15, 15), torch.empty(500).uniform_(0.85, 1.15))
    places = torch.arange(16.0)
    for axis in (2, 3):
        mass = turned.sum((1, 5 - axis))
        centres = (mass * places).sum(-1) / mass.sum(-1)
        assert (centres - 7.5).abs().max() < 0.02
    assert turned.sum((1, 2, 3)).std() > 0.5  # the sizes differ


def test_augmentation_is_bicubic():
    # Cubic interpolation of a step overshoots it; linear interpolation never leaves the range of its input.
    image = torch.zeros(1, 1, 16, 16)
    image[..., 8:] = 1.0
    turned = rotate_and_scale(image, torch.zeros(1), torch.tensor([1.3]))
    assert turned.max() > 1.01
    assert turned.min() < -0.01


@pytest.mark.parametrize("share", [0.0, 0.25, 0.75, 1.0])
def test_the_share_of_training_images_that_are_augmented(share):
    torch.manual_seed(0)
    digits = Digits(augment=share)
    digits.setup()
    originals = {image.numpy().tobytes() for image in digits.train.tensors[0]}
    images = torch.cat([batch for batch, _ in digits.train_dataloader()])
    changed = np.mean([image.numpy().tobytes() not in originals for image in images])
    # 1257 draws: 0.06 is about five standard deviations of the share.
    assert abs(changed - share) < 0.06
    assert changed == share or share not in (0.0, 1.0)


def test_only_training_batches_are_augmented(data):
    images, _ = next(iter(data.val_dataloader()))
    assert torch.equal(images, data.val.tensors[0])
    plain = Digits(augment=False)
    plain.setup()
    known = set(_raw(plain.train.tensors[0]))
    assert set(_raw(next(iter(plain.train_dataloader()))[0])) <= known
    assert not set(_raw(next(iter(data.train_dataloader()))[0])) <= known


def test_batches_repeat_with_the_seed_whatever_was_drawn(data):
    drawn = iter([0, 5, 0])

    def first(seed):
        torch.manual_seed(seed)
        torch.rand(next(drawn))
        return next(iter(data.train_dataloader()))

    (images, labels), (again, same), (other, _) = first(3), first(3), first(4)
    assert torch.equal(images, again)
    assert torch.equal(labels, same)
    assert not torch.equal(images, other)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_each_epoch_has_its_own_order_and_augmentation(num_workers):
    data = Digits(num_workers=num_workers)
    data.setup()
    loader, epochs = data.train_dataloader(), []
    for epoch in (0, 1, 0):
        loader.sampler.set_epoch(epoch)
        images, labels = map(torch.cat, zip(*loader, strict=True))
        epochs.append((images[torch.argsort(torch.tensor(list(loader.sampler)))], labels))
    (images, labels), (others, permuted), (again, same) = epochs
    assert torch.equal(images, again)
    assert torch.equal(labels, same)
    assert not torch.equal(labels, permuted)
    drawn_anew = (images != others).any(-1).any(-1).any(-1).float().mean()
    assert 0.85 < drawn_anew < 1  # of two draws a sixteenth is twice as it was


def test_the_angles_and_factors_stand_in_their_ranges(monkeypatch):
    seen = []
    monkeypatch.setattr("relbias.data.digits.rotate_and_scale", lambda images, *drawn: seen.append(drawn) or images)
    data = Digits(degrees=30, scale=(0.5, 0.9))
    data.setup()
    list(data.train_dataloader())
    degrees, factors = (torch.cat(drawn) for drawn in zip(*seen, strict=True))
    for drawn, (low, high) in ((degrees, (-30, 30)), (factors, (0.5, 0.9))):
        assert low <= drawn.min() < low + 0.01 * (high - low)
        assert high >= drawn.max() > high - 0.01 * (high - low)
        assert abs(drawn.mean() - (low + high) / 2) < 0.05 * (high - low)  # six standard deviations of the mean


def test_a_digit_at_the_edge_of_the_canvas():
    digit = torch.arange(64.0).view(1, 1, 8, 8) / 4
    canvas = on_canvas(digit, dy=4, dx=-4) * 3.677 + 1.221
    assert torch.allclose(canvas[..., 8:, :8], digit, atol=1e-5)
    assert canvas[..., :8, :].abs().max() < 1e-5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test_shift": 5, "shift_step": 1}, "test_shift is 5, expected 0 to 4: a greater shift pushes the digit off"),
        ({"test_shift": -1}, "test_shift is -1"),
        ({"test_shift": 3, "shift_step": 2}, "shift_step is 2, expected a divisor of test_shift, which is 3"),
        ({"shift_step": 0}, "shift_step is 0"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"augment": 1.5}, "augment is 1.5"),
        ({"degrees": float("nan")}, "degrees is nan"),
        ({"scale": (1.2, 0.8)}, r"scale is \(1.2, 0.8\)"),
        ({"num_workers": -1}, "num_workers is -1"),
        ({"test_sizes": [0]}, "a size in test_sizes .*1"),
        ({"test_sizes": [12, 12]}, r"a size twice: \[12, 12\]"),
        ({"test_sizes": [16]}, "test_sizes has 16, the size of the images itself"),
        ({"test_sizes": "12"}, "test_sizes is '12', expected a list of sides in pixels"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Digits(**options)


def test_values_are_checked_where_they_enter(monkeypatch):
    pixels, labels = load_digits(return_X_y=True)
    pixels[3, 5] = np.nan
    monkeypatch.setattr("relbias.data.digits.load_digits", lambda return_X_y: (pixels, labels))
    with pytest.raises(ValueError, match="with values 0 to 16"):
        Digits().setup()
