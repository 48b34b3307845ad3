import pytest
from tests.data import files


@pytest.fixture(scope="session")
def cifar10_root(tmp_path_factory):
    return files.write_cifar10(tmp_path_factory.mktemp("cifar10"))


@pytest.fixture
def cifar10(cifar10_root, monkeypatch):
    """A small data set in CIFAR-10's files, whose own checksums torchvision then expects."""
    files.expect_cifar10(cifar10_root, monkeypatch)
    return cifar10_root


@pytest.fixture(scope="session")
def flowers(tmp_path_factory):
    """A folder of three classes with 10, 12 and 15 images, to be read and not to be changed."""
    root = tmp_path_factory.mktemp("flowers")
    files.write_images(root, {"aster": 10, "lily": 12, "rose": 15})
    return root
