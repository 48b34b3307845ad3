import torch

import relbias as rb
from relbias.encodings import GRPE
from relbias.relations import Hops, Pairs
from relbias.testing import EncodingTestCase


class TestGRPEOfHops(EncodingTestCase):
    encoding = GRPE
    relation = Hops(max_distance=3)

    def code(self, index, i, j):
        return [{-1: 5, 4: 4}.get(d, d) for d in self.loop_offset(index, i, j).tolist()]

    def gathered(self, table, index):
        """(B, H, N, M, D), pair by pair."""
        n, m = index.shape
        pairs = [torch.stack([table[:, self.code(index, i, j)] for j in range(m)], dim=2) for i in range(n)]
        return torch.stack(pairs, dim=2).transpose(0, 1)

    def logits(self, encoding, q, k, scale, index):
        for_query, for_key = (self.gathered(t, index) for t in (encoding.query_vectors, encoding.key_vectors))
        content = q @ k.mT + torch.einsum("bhid,bhijd->bhij", q, for_query)
        return scale * (content + torch.einsum("bhjd,bhijd->bhij", k, for_key))

    def values(self, encoding, weights, index):
        return torch.einsum("bhij,bhijd->bhid", weights, self.gathered(encoding.value_vectors, index))


class TestGRPEOfEdgesWithoutValues(TestGRPEOfHops):
    encoding = GRPE
    options = {"values": False}
    relation = Pairs(num_codes=5)

    def code(self, index, i, j):
        return self.loop_offset(index, i, j).tolist()

    def values(self, encoding, weights, index):
        return 0.0


def test_the_key_of_the_pair_meets_the_vector():
    """Only the pair (0, 2) has a vector, so that key 2 alone changes, and as k_2, not as k_0."""
    encoding = GRPE(1, 2, Pairs(2), values=False).double()
    encoding.zero_()
    with torch.no_grad():
        encoding.key_vectors[0, 1] = torch.tensor([1.0, 10.0])
    codes = torch.zeros(3, 3, dtype=torch.long)
    codes[0, 2] = 1
    k = torch.tensor([[5.0, 7.0], [0.0, 0.0], [2.0, 3.0]], dtype=torch.float64)[None, None]
    q = torch.zeros_like(k)
    _, weights = rb.relative_attention(q, k, k, encoding(Pairs(2)(codes)), scale=0.1, return_weights=True)
    added = torch.tensor([[0.0, 0.0, 3.2], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(weights[0, 0], added.softmax(dim=-1))
