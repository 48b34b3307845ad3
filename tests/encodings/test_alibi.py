import math

import pytest
import torch

from relbias.encodings import ALiBi
from relbias.encodings.alibi import alibi_slopes
from relbias.relations import Grid, Sequence
from relbias.testing import EncodingTestCase


class TestALiBi(EncodingTestCase):
    encoding = ALiBi

    def bias(self, head, offset):
        return -(2.0 ** (-2 * (head + 1))) * abs(offset)

    def logits(self, encoding, q, k, scale, index):
        n, m = index.shape
        bias = torch.tensor(
            [[[self.bias(h, self.loop_offset(index, i, j)) for j in range(m)] for i in range(n)] for h in range(4)],
            dtype=q.dtype,
        )
        return scale * q @ k.mT + bias


class TestALiBiCausal(TestALiBi):
    encoding = ALiBi
    options = {"variant": "causal"}
    zero_start = False

    def bias(self, head, offset):
        return -math.inf if offset > 0 else super().bias(head, offset)


class TestALiBiAsymmetric(TestALiBi):
    encoding = ALiBi
    options = {"variant": "asymmetric"}
    zero_start = False

    def bias(self, head, offset):
        slope = 2.0 ** (-4 * (head % 2 + 1))
        hidden = offset > 0 if head < 2 else offset < 0
        return -math.inf if hidden else -slope * abs(offset)


@pytest.mark.parametrize("num_heads", [1, 2, 3, 7, 8, 12, 20])
def test_slopes_are_the_papers(num_heads):
    def paper(n):
        if math.log2(n).is_integer():
            start = 2 ** (-(2 ** -(math.log2(n) - 3)))
            return [start * start**i for i in range(n)]
        below = 2 ** math.floor(math.log2(n))
        return paper(below) + paper(2 * below)[0::2][: n - below]

    assert alibi_slopes(num_heads) == pytest.approx(paper(num_heads), rel=1e-12)
    for variant in ("symmetric", "causal", "asymmetric"):
        assert len(ALiBi(num_heads, 4, variant=variant).slopes) == num_heads


def test_refuses_an_unknown_variant():
    with pytest.raises(ValueError, match="symmetric, causal, asymmetric"):
        ALiBi(4, 16, variant="sideways")


class TestALiBiNonsymmetric(TestALiBi):
    encoding = ALiBi
    options = {"variant": "nonsymmetric", "learned": True}

    def logits(self, encoding, q, k, scale, index):
        n, m = index.shape
        slopes = encoding.log_slopes.exp()
        rows = []
        for h in range(4):
            for i in range(n):
                offsets = [self.loop_offset(index, i, j) for j in range(m)]
                rows.append(torch.stack([-slopes[0, h] * -d if d < 0 else -slopes[1, h] * d for d in offsets]))
        return scale * q @ k.mT + torch.stack(rows).view(4, n, m)


class TestALiBiGrid(TestALiBi):
    encoding = ALiBi
    relation = Grid(3, 4, prefix_tokens=2)

    def bias(self, head, offset):
        if not isinstance(offset[0], int):
            return 0.0
        return -(2.0 ** (-2 * (head + 1))) * math.sqrt(offset[0] ** 2 + offset[1] ** 2)


@pytest.mark.parametrize("variant", ["symmetric", "causal", "asymmetric", "nonsymmetric"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_learned_slopes_start_as_the_fixed_ones(variant, dtype):
    fixed = ALiBi(5, 8, variant="symmetric" if variant == "nonsymmetric" else variant)
    learned = ALiBi(5, 8, variant=variant, learned=True, dtype=dtype)
    index = Sequence()(4, 6)
    (mine,), (theirs,) = learned(index).entries, fixed(index).entries
    torch.testing.assert_close(mine.b, theirs.b, rtol=1e-6 if dtype == torch.float32 else 1e-14, atol=0)
    assert learned.log_slopes.dtype == dtype
    mine.b.masked_fill(mine.b.isinf(), 0.0).sum().backward()
    assert bool(learned.log_slopes.grad.isfinite().all())
    assert bool(learned.log_slopes.grad.all())


def test_learned_slopes_on_a_grid():
    grid = Grid(2, 3)
    encoding = ALiBi(2, 8, grid, learned=True)
    (entry,) = encoding(grid()).entries
    entry.b.sum().backward()
    assert bool(encoding.log_slopes.grad.all())
    bias = entry.b[:, entry.index.codes()[0, 0]]
    assert float(bias[0, 0, 5].detach()) == pytest.approx(-(2.0**-4) * math.sqrt(5), rel=1e-6)


def test_a_larger_grid_needs_nothing():
    grid = Grid(2, 2, prefix_tokens=1)
    encoding = ALiBi(2, 8, grid)
    (entry,) = encoding(encoding.grid_index(4, 5)).entries
    assert entry.b.shape == (2, 7 * 9 + 3)  # a number per offset, not per pair
    bias = entry.b[:, entry.index.codes()[0, 0]]
    assert float(bias[1, 1, 20]) == pytest.approx(-(2.0**-8) * 5.0, rel=1e-12)  # (3, 4) patches away


@pytest.mark.parametrize(
    ("relation", "options", "message"),
    [
        (Grid(2, 2), {"variant": "causal"}, "a grid has no order"),
        (Grid(2, 2, max_distance=1), {}, "without max_distance"),
        (Sequence(max_distance=4), {}, "without max_distance"),
        (Sequence(), {"variant": "nonsymmetric"}, "learned=True"),
    ],
)
def test_refuses_what_does_not_fit(relation, options, message):
    with pytest.raises(ValueError, match=message):
        ALiBi(4, 16, relation, **options)


@pytest.mark.parametrize("given", [False, True])
def test_a_transposed_index_swaps_the_slopes(given):
    encoding = ALiBi(2, 8, variant="nonsymmetric", learned=True)
    with torch.no_grad():
        encoding.log_slopes[1] += 1.0
    positions = (torch.arange(2, 5), torch.arange(5)) if given else ()
    (entry,) = encoding(Sequence()(3, 5, *positions).T).entries
    bias = entry.b(slice(None))[0] if given else entry.b[:, entry.index.codes()[0, 0]]
    before, after = encoding.log_slopes.exp()
    for i in range(3):
        for j in range(5):
            slope = after if j < i + 2 else before
            torch.testing.assert_close(bias[:, i, j].float(), -slope * abs(j - i - 2))
