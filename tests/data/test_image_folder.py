import shutil
from types import SimpleNamespace

import pytest
import torch
from PIL import Image
from tests.data.files import write_images
from torch.utils.data import Subset
from torchvision import transforms

from relbias.data import ImageFolder

CONFIG = {
    "input_size": (3, 32, 32), "interpolation": "bicubic", "mean": (0.5, 0.4, 0.3), "std": (0.2, 0.3, 0.4),
    "crop_pct": 0.8, "crop_mode": "center",
}  # fmt: skip


def task(num_classes=3, **config):
    return SimpleNamespace(network=SimpleNamespace(data_config={**CONFIG, **config}), num_classes=num_classes)


def make(root, num_classes=3, **options):
    data = ImageFolder(root=str(root), **options)
    data.adapt_to(task(num_classes))
    data.setup()
    return data


def files_of(part):
    dataset, positions = (part.dataset, part.indices) if isinstance(part, Subset) else (part, range(len(part)))
    return [dataset.samples[position][0] for position in positions]


@pytest.fixture
def parted(tmp_path):
    for part, number in (("train", 5), ("val", 2), ("test", 3)):
        write_images(tmp_path / part, {"aster": number, "lily": number})
    return tmp_path


def test_a_folder_of_classes_is_split_and_stratified(flowers):
    data = make(flowers)
    parts = [files_of(part) for part in (data.train, data.val, data.test)]
    assert sorted(file for part in parts for file in part) == sorted(str(path) for path in flowers.rglob("*.png"))
    counts = [[sum(f"/{name}/" in file for file in part) for name in ("aster", "lily", "rose")] for part in parts]
    assert counts == [[8, 10, 11], [1, 1, 2], [1, 1, 2]]
    torch.manual_seed(9)
    assert files_of(make(flowers).val) == parts[1]
    assert files_of(make(flowers, split_seed=1).val) != parts[1]
    assert data.classes == ["aster", "lily", "rose"]
    assert data.found == {"classes": ["aster", "lily", "rose"]}


def test_folders_for_the_parts_are_taken_as_they_stand(parted):
    data = make(parted, 2)
    for name in ("train", "val", "test"):
        assert files_of(getattr(data, name)) == sorted(str(path) for path in (parted / name).rglob("*.png"))
    shutil.rmtree(parted / "test")
    data = make(parted, 2)
    assert files_of(data.test) == files_of(data.val)


def test_images_are_prepared_as_the_network_needs_them(flowers):
    data = make(flowers, test_sizes=[48])
    own, larger = (next(iter(loader)) for loader in data.test_dataloader())
    for (images, labels), size in ((own, 32), (larger, 48)):
        prepare = transforms.Compose(
            [
                transforms.Resize(int(size / 0.8), transforms.InterpolationMode.BICUBIC),
                transforms.CenterCrop(size),
                transforms.ToTensor(),
                transforms.Normalize(CONFIG["mean"], CONFIG["std"]),
            ]
        )
        expected = torch.stack([prepare(Image.open(file)) for file in files_of(data.test)])
        torch.testing.assert_close(images, expected)
        assert labels.tolist() == [0, 1, 2, 2]
    assert data.image_size == 32
    assert torch.equal(next(iter(data.predict_dataloader()))[0], own[0])


def test_training_images_are_augmented_anew_in_each_epoch(flowers):
    data = make(flowers, batch_size=40)
    loader = data.train_dataloader()
    first = next(iter(loader))
    assert first[0].shape == (29, 3, 32, 32)
    assert torch.equal(next(iter(loader))[0], first[0])
    # The colour of a class stands out whatever is cut.
    colours = first[0] * torch.tensor(CONFIG["std"]).view(3, 1, 1) + torch.tensor(CONFIG["mean"]).view(3, 1, 1)
    assert colours.mean((2, 3)).argmax(1).tolist() == first[1].tolist()
    loader.sampler.set_epoch(1)
    assert not torch.equal(next(iter(loader))[0].sum((1, 2, 3)).sort()[0], first[0].sum((1, 2, 3)).sort()[0])
    plain = make(flowers, batch_size=40, augment=False)
    images, labels = next(iter(plain.train_dataloader()))
    val = plain.val_dataloader().collate_fn(
        [plain.train_dataloader().dataset[place] for place in plain.train_dataloader().sampler]
    )
    assert torch.equal(images, val[0])
    assert torch.equal(labels, val[1])


def spoiled(root, change):
    """A copy of a folder of flowers with something wrong about it."""
    write_images(root, {"aster": 4, "lily": 4, "rose": 4})
    change(root)
    return root


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda root: shutil.rmtree(root), "there is no folder .*; give one that holds a folder of images for each"),
        (lambda root: [shutil.rmtree(root / n) for n in ("aster", "lily", "rose")], "has no folder, expected"),
        (lambda root: [shutil.rmtree(root / n) for n in ("aster", "lily")], "has only the folder rose, expected"),
        (
            lambda root: [file.unlink() for file in (root / "lily").iterdir()],
            r"lily has no images \(.jpg, .*add some or",
        ),
        (lambda root: [file.unlink() for file in sorted((root / "lily").iterdir())[2:]], "class 'lily' has 2 images"),
        (
            lambda root: shutil.rmtree(root / "rose"),
            r"has 2 classes and num_classes is 3; give --model.init_args.num_cl",
        ),
        (lambda root: (root / "aster").rename(root / "train"), "has a folder train and none for validation; name that"),
    ],
)
def test_a_folder_that_does_not_do(change, message, tmp_path):
    root = spoiled(tmp_path / "flowers", change)
    with pytest.raises(ValueError, match=message) as caught:
        make(root)
    assert "\n" not in str(caught.value)


def test_parts_with_other_classes(parted):
    (parted / "val" / "lily").rename(parted / "val" / "rose")
    with pytest.raises(ValueError, match=r"the classes of .*val differ from .*train: it lacks lily and adds rose$"):
        make(parted, 2)


def test_classes_that_are_not_those_expected(flowers):
    make(flowers, classes=["aster", "lily", "rose"])
    with pytest.raises(ValueError, match=r"differ from what is expected: it lacks tulip and adds lily"):
        make(flowers, classes=["aster", "rose", "tulip"])


@pytest.mark.parametrize("content", [b"no image", b"\x89PNG\r\n\x1a\n cut off", None])
@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_image_that_cannot_be_read_is_named(content, num_workers, tmp_path):
    write_images(tmp_path, {"aster": 4, "lily": 4})
    file = tmp_path / "lily" / "002.png"
    file.write_bytes(file.read_bytes()[:300] if content is None else content)
    data = make(tmp_path, 2, num_workers=num_workers)
    loaders = [data.train_dataloader(), data.val_dataloader(), *data.test_dataloader()]
    with pytest.raises(
        ValueError, match=r"lily/002.png cannot be read as an image: .*; replace or remove it"
    ) as caught:
        [list(loader) for loader in loaders]
    assert "Traceback" not in str(caught.value)


def test_other_images_are_made_to_three_colours(tmp_path):
    write_images(tmp_path, {"aster": 4, "lily": 4})
    for number, mode in enumerate(["L", "RGBA", "P", "1"]):
        with Image.open(tmp_path / "lily" / f"{number:03}.png") as image:
            image.convert(mode).save(tmp_path / "lily" / f"{number:03}.png")
    data = make(tmp_path, 2, augment=False)
    assert next(iter(data.train_dataloader()))[0].shape == (4, 3, 32, 32)


def test_what_the_network_must_tell(flowers):
    with pytest.raises(ValueError, match=r"call adapt_to\(task\) first"):
        ImageFolder(root=str(flowers)).image_size  # noqa: B018
    with pytest.raises(
        ValueError, match="ImageFolder prepares images as the network's data_config says, and Linear has"
    ):
        ImageFolder(root=str(flowers)).adapt_to(SimpleNamespace(network=torch.nn.Linear(1, 1)))
    with pytest.raises(ValueError, match="gives square images, and the network takes 32x64"):
        ImageFolder(root=str(flowers)).adapt_to(task(input_size=(3, 32, 64)))
    with pytest.raises(ValueError, match="test_sizes has 32, the size of the images itself"):
        ImageFolder(root=str(flowers), test_sizes=[32]).adapt_to(task())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"split_seed": -1}, "split_seed"),
        ({"num_workers": -1}, "num_workers"),
        ({"val_share": 0.0}, r"val_share is 0.0 and test_share is 0.1, expected shares above 0, together below 1"),
        ({"val_share": 0.5, "test_share": 0.5}, "together below 1"),
        ({"test_sizes": [0]}, "a size in test_sizes"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ImageFolder("flowers", **options)
