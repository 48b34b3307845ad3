import math

import pytest
import torch

from relbias.encodings import Fire
from relbias.relations import Sequence
from relbias.testing import EncodingTestCase


def bias(encoding, query, key, threshold):
    """FIRE's bias of every head for two positions, (H,)."""
    limit = (threshold * encoding.threshold_factor).abs()
    far = torch.maximum(limit, torch.tensor(query, dtype=limit.dtype))
    y = ((encoding.c * abs(query - key)).abs() + 1).log() / (((encoding.c * far).abs() + 1).log() + 1e-6)
    hidden = (encoding.hidden.weight[:, 0] * y + encoding.hidden.bias).clamp(min=0.0)
    return encoding.out.weight @ hidden + encoding.out.bias


class TestFire(EncodingTestCase):
    encoding = Fire
    options = {"width": 5, "threshold": 3.0}

    def logits(self, encoding, q, k, scale, index):
        n, m = index.shape
        rows = [[bias(encoding, i + m - n, j, 3.0) for j in range(m)] for i in range(n)]
        return scale * q @ k.mT + torch.stack([torch.stack(row) for row in rows]).permute(2, 0, 1)


def make(**options):
    torch.manual_seed(0)
    encoding = Fire(3, 4, **options).double()
    with torch.no_grad():
        encoding.c.fill_(0.4)
    return encoding


@pytest.mark.parametrize("batch", [1, 2])
def test_given_positions(batch):
    encoding = make(threshold=6.0)
    queries, keys = torch.randint(-5, 20, (batch, 3)), torch.randint(-5, 20, (1, 5))
    (entry,) = encoding(Sequence()(3, 5, queries, keys)).entries
    got = entry.b(slice(1, 3))
    assert got.shape == (batch, 3, 2, 5)
    for b in range(batch):
        for i in (1, 2):
            for j in range(5):
                expected = bias(encoding, int(queries[b, i]), int(keys[0, j]), 6.0)
                torch.testing.assert_close(got[b, :, i - 1, j], expected, rtol=1e-9, atol=1e-12)


def test_the_transposed_index_is_of_the_pair_the_other_way_round():
    encoding = make(threshold=2.0)
    (entry,), (transposed,) = encoding(Sequence()(7)).entries, encoding(Sequence()(7).T).entries
    assert torch.equal(transposed.b(slice(None)), entry.b(slice(None)).mT)
    assert not torch.equal(transposed.b(slice(None)), entry.b(slice(None)))


def test_depends_on_the_distance_alone_up_to_the_threshold_and_not_beyond_it():
    (entry,) = make(threshold=6.0)(Sequence()(12)).entries
    bias = entry.b(slice(None))[0, 0]
    torch.testing.assert_close(bias[3, 1], bias[6, 4], rtol=1e-12, atol=0)
    assert abs(float((bias[11, 9] - bias[6, 4]).detach())) > 1e-4


def test_units_without_a_kink_inside_add_what_they_should():
    encoding = make(width=6, threshold=4.0)
    with torch.no_grad():
        encoding.hidden.weight[:, 0] = torch.tensor([0.0, 0.0, 1e-300, -2.0, 1.0, -1.0])
        encoding.hidden.bias[:] = torch.tensor([0.5, -0.5, -1.0, -1.0, -5.0, 0.5])
    (entry,) = encoding(Sequence()(9)).entries
    got = entry.b(slice(None))
    for i in range(9):
        for j in range(9):
            torch.testing.assert_close(got[0, :, i, j], bias(encoding, i, j, 4.0), rtol=1e-12, atol=1e-14)
    got.sum().backward()
    assert all(bool(parameter.grad.isfinite().all()) for parameter in encoding.parameters())


def test_no_number_per_pair_and_unit():
    encoding = make(width=256)
    (entry,) = encoding(Sequence()(64)).entries
    sizes = []

    class Sizes(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            sizes.extend(o.numel() for o in (out if isinstance(out, tuple | list) else (out,)) if torch.is_tensor(o))
            return out

    with Sizes():
        entry.b(slice(None)).sum().backward()
    assert max(sizes) < 64 * 64 * 256 / 8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, "'fire' width must be an integer of at least 1"),
        ({"threshold": 0.0}, "'fire' threshold must be a number above 0, got 0.0"),
        ({"threshold": float("nan")}, "above 0, got nan"),
        ({"threshold": "512"}, "above 0, got '512'"),
        ({"relation": Sequence(max_distance=4)}, r"takes Sequence\(\) unclipped"),
    ],
)
def test_refuses_what_does_not_fit(options, message):
    with pytest.raises(ValueError, match=message):
        Fire(4, 16, **options)


def test_starts_as_the_paper_does():
    encoding = Fire(4, 16)
    assert float(encoding.c.detach()) == pytest.approx(0.1)
    assert float(encoding.threshold_factor.detach()) == 1.0
    (entry,) = encoding.double()(Sequence()(2)).entries
    y = math.log1p(float(encoding.c.detach())) / (math.log1p(512 * float(encoding.c.detach())) + 1e-6)
    expected = encoding.out(torch.relu(encoding.hidden(torch.tensor([y], dtype=torch.float64))))
    torch.testing.assert_close(entry.b(slice(None))[0, :, 1, 0], expected, rtol=1e-12, atol=1e-12)
