import random

import pytest
import torch

from relbias.data.images import batches, split, training_batches
from relbias.data.order import seeded, shuffled


class Numbers:
    """Images that are their position, labels that are its half."""

    def __len__(self):
        return 12

    def __getitem__(self, position):
        return position, position // 2


def drawing(image):
    return torch.tensor([float(image), torch.rand(()).item(), random.random()])


def epoch(batch_size=4, num_workers=0, number=0, seed=7):
    torch.manual_seed(seed)
    loader = training_batches(Numbers(), drawing, batch_size, num_workers, None)
    loader.sampler.set_epoch(number)
    images, labels = map(torch.cat, zip(*loader, strict=True))
    assert torch.equal(labels, images[:, 0].long() // 2)
    return images


def test_random_numbers_belong_to_the_sample_and_the_epoch():
    images = epoch()
    assert sorted(images[:, 0].tolist()) == list(range(12))
    assert len(set(images[:, 1].tolist())) == len(set(images[:, 2].tolist())) == 12
    assert torch.equal(epoch(batch_size=3), images)  # however batches are made
    assert torch.equal(epoch(num_workers=2), images)  # and by whom
    for other in (epoch(number=1), epoch(seed=8)):
        assert not set(other[:, 1].tolist()) & set(images[:, 1].tolist())


def test_random_states_are_afterwards_as_they_were():
    torch.manual_seed(3)
    random.seed(3)
    before = torch.get_rng_state(), random.getstate()
    with seeded(shuffled(range(6)), 2):
        torch.rand(3), random.random()
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]


def test_evaluation_is_in_order():
    images, labels = next(iter(batches(Numbers(), lambda image: torch.tensor([float(image)]), 12, 0)))
    assert images.flatten().tolist() == list(range(12))
    assert (labels.dtype, labels.tolist()) == (torch.int64, [number // 2 for number in range(12)])


@pytest.mark.parametrize("shares", [(0.1, 0.1), (0.3, 0.2), (0.2, 0.0)])
def test_each_class_is_split_by_the_shares(shares):
    labels = [0] * 20 + [1] * 7 + [0] * 10 + [2] * 100
    parts = split(labels, ["a", "b", "c"], *shares, seed=1)
    assert sorted(position for part in parts for position in part) == list(range(len(labels)))
    for label, count in ((0, 30), (1, 7), (2, 100)):
        for part, share in zip(parts[1:], shares, strict=True):
            own = sum(labels[position] == label for position in part)
            assert own == (max(1, round(share * count)) if share else 0)
    assert split(labels, ["a", "b", "c"], *shares, seed=1) == parts
    assert split(labels, ["a", "b", "c"], *shares, seed=2) != parts


def test_a_class_that_is_too_small_is_named():
    with pytest.raises(ValueError, match="class 'b' has 2 images, and 1 for validation and 1 for the test leave none"):
        split([0] * 9 + [1] * 2, ["a", "b"], 0.1, 0.1, seed=0)
