"""Small data sets in the formats of real ones."""

import hashlib
import pickle

import numpy as np
import soundfile
from PIL import Image
from torchvision import datasets


def write_cifar10(root, per_batch=40, classes=10):
    """Batches of random images of 32 x 32 pixels in the files of CIFAR-10's archive for Python."""
    folder = root / "cifar-10-batches-py"
    folder.mkdir()
    generator = np.random.default_rng(0)
    for name in [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]:
        labels = [position % classes for position in range(per_batch)]
        data = generator.integers(0, 256, (per_batch, 3 * 32 * 32), dtype=np.uint8)
        data[:, :1024] = np.array(labels, dtype=np.uint8)[:, None] * 25  # the red of all pixels tells the class
        (folder / name).write_bytes(pickle.dumps({"data": data, "labels": labels, "batch_label": name}))
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": names}))
    return root


def expect_cifar10(root, monkeypatch):
    """Makes torchvision, which checks that it reads the files that the authors published, check these instead."""

    def checksum(name):
        return hashlib.md5((root / datasets.CIFAR10.base_folder / name).read_bytes()).hexdigest()

    for part in ("train_list", "test_list"):
        listed = [[name, checksum(name)] for name, _ in getattr(datasets.CIFAR10, part)]
        monkeypatch.setattr(datasets.CIFAR10, part, listed)
    meta = datasets.CIFAR10.meta
    monkeypatch.setattr(datasets.CIFAR10, "meta", {**meta, "md5": checksum(meta["filename"])})


def write_images(root, numbers, size=(40, 50)):
    """A folder for each class with PNG files, whose colour tells the class and whose noise the image."""
    generator = np.random.default_rng(0)
    for place, (name, number) in enumerate(numbers.items()):
        (root / name).mkdir(parents=True)
        for position in range(number):
            pixels = generator.integers(0, 60, (*size, 3), dtype=np.uint8)
            pixels[..., place % 3] += 150
            Image.fromarray(pixels).save(root / name / f"{position:03}.png")


def write_clips(root, numbers, rate=8000, seconds=0.1):
    """A folder for each class with WAV files, whose tone tells the class and whose noise the clip."""
    generator = np.random.default_rng(0)
    time = np.arange(round(seconds * rate)) / rate
    for place, (name, number) in enumerate(numbers.items()):
        (root / name).mkdir(parents=True, exist_ok=True)
        for n in range(number):
            samples = 0.3 * np.sin(2 * np.pi * 300 * (place + 1) * time) + generator.normal(0, 0.01, len(time))
            soundfile.write(root / name / f"{n:03}.wav", samples, rate)
    return root
