import urllib.error

import numpy as np
import pytest
import torch
from torchvision import datasets
from torchvision.transforms import v2

from relbias.data import CIFAR10


def make(root, **options):
    data = CIFAR10(root=str(root), **{"batch_size": 32, **options})
    data.prepare_data()
    data.setup()
    return data


def pixels(images):
    """0 to 255 again."""
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)))
    return ((images * std + mean) * 255).round().to(torch.uint8)


def test_every_training_image_stands_in_one_part_and_each_class_in_both(cifar10):
    data = make(cifar10)
    chosen, held_out = data.train.indices, data.val.indices
    assert sorted([*chosen, *held_out]) == list(range(200))
    labels = np.array(data.train.dataset.targets)
    assert np.bincount(labels[held_out]).tolist() == [2] * 10
    torch.manual_seed(5)
    assert make(cifar10).val.indices == held_out  # whatever the seed
    assert len(data.test) == 40
    assert tuple(data.test.classes) == CIFAR10.classes


def test_images_are_normalised(cifar10):
    data = make(cifar10)
    images, labels = next(iter(data.test_dataloader()[0]))
    assert (images.dtype, labels.dtype, images.shape) == (torch.float32, torch.int64, (32, 3, 32, 32))
    assert torch.equal(pixels(images), torch.from_numpy(data.test.data[:32]).permute(0, 3, 1, 2))
    assert labels.tolist() == data.test.targets[:32]
    val, val_labels = next(iter(data.val_dataloader()))
    assert torch.equal(pixels(val)[:, 0, 0, 0], (val_labels * 25).to(torch.uint8))


def test_training_images_are_cropped_and_flipped(cifar10):
    data = make(cifar10, batch_size=180)
    loader = data.train_dataloader()
    images, labels = next(iter(loader))
    originals = torch.from_numpy(data.train.dataset.data[data.train.indices]).permute(0, 3, 1, 2)
    order = list(loader.sampler)
    assert labels.tolist() == [data.train.dataset.targets[data.train.indices[place]] for place in order]
    places = set()
    for image, original in zip(pixels(images), originals[order], strict=True):
        padded = torch.nn.functional.pad(original, (4, 4, 4, 4))
        found = [
            (y, x, flipped)
            for y in range(9)
            for x in range(9)
            for flipped in (False, True)
            if torch.equal(
                image, padded[:, y : y + 32, x : x + 32].flip(-1) if flipped else padded[:, y : y + 32, x : x + 32]
            )
        ]
        assert len(found) == 1
        places.add(found[0])
    assert len(places) > 80  # of 162


def test_without_augmentation_training_images_are_as_they_are(cifar10):
    data = make(cifar10, augment=False, batch_size=180)
    images, _ = next(iter(data.train_dataloader()))
    originals = {image.tobytes() for image in data.train.dataset.data}
    assert all(image.permute(1, 2, 0).numpy().tobytes() in originals for image in pixels(images))


def test_another_size_is_the_scaled_image(cifar10):
    data = make(cifar10, test_sizes=[48])
    own, larger = data.test_dataloader()
    [smaller] = list(data.test_dataloader_at(16))[:1]
    assert next(iter(larger))[0].shape == (32, 3, 48, 48)
    assert smaller[0].shape == (32, 3, 16, 16)
    expected = v2.functional.resize(pixels(next(iter(own))[0]), [16, 16], v2.InterpolationMode.BICUBIC, antialias=True)
    assert (pixels(smaller[0]).int() - expected.int()).abs().max() <= 1


def test_a_missing_data_set_is_one_line(tmp_path):
    with pytest.raises(ValueError, match="does not hold CIFAR-10, or its files are damaged; download=True fetches it"):
        CIFAR10(root=str(tmp_path)).prepare_data()


def test_a_damaged_file_is_noticed(cifar10, tmp_path):
    copy = tmp_path / "cifar-10-batches-py"
    copy.mkdir()
    for file in (cifar10 / "cifar-10-batches-py").iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    make(tmp_path)
    (copy / "data_batch_3").write_bytes(b"other")
    with pytest.raises(ValueError, match="or its files are damaged"):
        make(tmp_path)


def test_without_a_connection(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise urllib.error.URLError("no route")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    with pytest.raises(ValueError, match=r"CIFAR-10 cannot be fetched: .*no route.*; put cifar-10-python.tar.gz from"):
        CIFAR10(root=str(tmp_path), download=True).prepare_data()


def test_what_is_there_is_not_fetched(cifar10, monkeypatch):
    monkeypatch.setattr(datasets.CIFAR10, "download", lambda self: pytest.fail("fetched"))
    make(cifar10, download=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"num_workers": -1}, "num_workers"),
        ({"test_sizes": [32]}, "test_sizes has 32, the size of the images itself"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        CIFAR10(**options)
