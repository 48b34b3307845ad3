"""What a task says about sizes other than that of its training."""

import copy
from functools import partial

import pytest
import timm
import torch
from torch import nn

from relbias.models.vision import VisionTransformer
from relbias.tasks import ImageClassification, Task

OURS = {"image_size": 16, "patch_size": 4, "in_channels": 1, "num_classes": 10, "dim": 16, "depth": 2, "num_heads": 2}


def ours(encoding):
    torch.manual_seed(0)
    return ImageClassification(partial(VisionTransformer, **OURS), encoding).eval()


def of_timm(encoding, **options):
    """A plain network of timm, whose patches have a height and a width."""
    options = {"img_size": 16, "patch_size": 4, "embed_dim": 16, "depth": 1, "num_heads": 2, **options}
    return ImageClassification(lambda encoding: timm.models.VisionTransformer(**options, num_classes=10), encoding)


def test_the_size_of_a_batch_is_the_side_of_its_images():
    task = ours("none")
    assert task.size_of((torch.zeros(2, 1, 24, 24), torch.zeros(2))) == 24
    with pytest.raises(ValueError, match="the images are 24 x 16 pixels, expected squares"):
        task.size_of((torch.zeros(2, 1, 24, 16), torch.zeros(2)))


@pytest.mark.parametrize("build", [ours, of_timm])
def test_sizes_are_multiples_of_the_patch(build):
    task = build("table")
    task.check_size(20)
    with pytest.raises(ValueError, match="an image side of 18 pixels is no multiple of the network's patch size 4"):
        task.check_size(18)


def test_a_network_that_fills_up_patches_takes_any_size():
    of_timm("none", dynamic_img_pad=True).check_size(18)


def test_a_network_without_patches_takes_any_size():
    ImageClassification(lambda encoding: nn.Flatten(), "none").check_size(17)


@pytest.mark.parametrize("unit", ["patch", "image"])
@pytest.mark.parametrize("encoding", ["table", {"far": "table", "turn": "rope_axial"}], ids=str)
def test_the_network_prepares_itself(unit, encoding):
    task = ours(encoding)
    for parameter in task.parameters():
        nn.init.normal_(parameter, std=0.3)
    other = copy.deepcopy(task.network)
    images = torch.randn(1, 1, 24, 24)
    for call in (lambda: task(images), lambda: task.prepare_for_size(24)):
        with pytest.raises(ValueError, match="resize"):
            call()
    task.prepare_for_size(24, unit)
    other.prepare_for_size(24, unit)
    assert torch.equal(task(images), other(images))


def test_a_network_without_tables_needs_no_unit():
    task = ours("shaw")
    images = torch.randn(1, 1, 24, 24)
    before = task(images)
    task.prepare_for_size(24)
    assert torch.equal(task(images), before)


def test_a_network_that_cannot_prepare_itself():
    with pytest.raises(ValueError, match=r"VisionTransformer has no prepare_for_size\(size, unit\)"):
        of_timm("none").prepare_for_size(24, "image")


def test_a_task_that_says_nothing():
    task = Task()
    task.check_size(3)
    assert task.extrapolation is None
    for call in (lambda: task.size_of(None), lambda: task.prepare_for_size(3, "patch")):
        with pytest.raises(ValueError, match=r"Task .*; define"):
            call()
