import math

import pytest
import torch

from relbias.encodings import ALiBi
from relbias.encodings.alibi import alibi_slopes
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
