import pytest
import torch

import relbias as rb
from relbias.encodings import FeatureMLP, Table
from relbias.relations import Features
from relbias.testing import EncodingTestCase


def gelu(x):
    return 0.5 * x * (1 + torch.erf(x / 2**0.5))


class TestFeatureMLP(EncodingTestCase):
    encoding = FeatureMLP
    options = {"width": 5}
    relation = Features(num_features=3)

    def logits(self, encoding, q, k, scale, index):
        (n, m), values = index.shape, index.values.double()
        biases = torch.empty(2, 4, n, m, dtype=torch.float64)
        for b in range(2):
            for i in range(n):
                for j in range(m):
                    hidden = gelu(encoding.hidden.weight @ values[b, i, j] + encoding.hidden.bias)
                    biases[b, :, i, j] = encoding.out.weight @ hidden + encoding.out.bias
        return scale * q @ k.mT + biases


def test_one_set_of_features_serves_a_batch():
    encoding, values = FeatureMLP(4, 16, Features(3)), torch.randn(5, 5, 3)
    (alone,), (batched,) = (encoding(Features(3)(x)).entries for x in (values, values.expand(2, 5, 5, 3)))
    assert alone.b(slice(None)).shape == (1, 4, 5, 5)
    torch.testing.assert_close(alone.b(slice(1, 3)).expand(2, 4, 2, 5), batched.b(slice(1, 3)))


def test_an_index_of_other_tokens_is_refused():
    q = torch.randn(1, 4, 5, 16)
    for shape in ((4, 5), (5, 4), (1, 5), (5, 1)):
        terms = FeatureMLP(4, 16, Features(3))(Features(3)(torch.randn(*shape, 3)))
        with pytest.raises(ValueError, match="the index is of"):
            rb.relative_attention(q, q, q, terms)


def test_refusals():
    with pytest.raises(ValueError, match="'feature_mlp' width must be an integer of at least 1, got 0"):
        FeatureMLP(4, 16, Features(3), width=0)
    with pytest.raises(ValueError, match="takes an index made by Features"):
        FeatureMLP(4, 16, Features(3))(Features(2)(torch.zeros(5, 5, 2)))
    with pytest.raises(ValueError, match="'table' needs a relation with a limited number of codes"):
        Table(4, 16, Features(3))
