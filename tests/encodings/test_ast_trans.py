import pytest
import torch

import relbias as rb
from relbias.encodings import ASTTrans
from relbias.relations import HeadGroups, Hops, Pairs, ancestor_codes, sibling_codes
from relbias.testing import EncodingTestCase

PAIRS = Pairs(num_codes=6)  # up to 2 apart


class TestASTTrans(EncodingTestCase):
    encoding = ASTTrans
    relation = HeadGroups((PAIRS, Pairs(8)), heads=(1, 3))
    zero_start = False

    def code(self, index, h, i, j):
        return index.indices[0 if h == 0 else 1].values[:, 0, i, j].tolist()

    def gathered(self, table, index):
        """(B, H, N, M, D), pair by pair."""
        n, m = index.shape

        def rows(h):
            return torch.stack(
                [torch.stack([table[h, self.code(index, h, i, j)] for j in range(m)], dim=1) for i in range(n)], dim=1
            )

        return torch.stack([rows(h) for h in range(4)], dim=1)

    def hidden(self, index):
        n, m = index.shape
        codes = [[[self.code(index, h, i, j) for j in range(m)] for i in range(n)] for h in range(4)]
        last = torch.tensor([5, 7, 7, 7])[:, None, None, None]
        return (torch.tensor(codes) == last).movedim(-1, 0)

    def logits(self, encoding, q, k, scale, index):
        for_query, for_key = (self.gathered(t, index) for t in (encoding.query_vectors, encoding.key_vectors))
        content = q @ k.mT + torch.einsum("bhid,bhijd->bhij", q, for_query)
        logits = scale * (content + torch.einsum("bhjd,bhijd->bhij", k, for_key))
        return logits.masked_fill(self.hidden(index), -torch.inf)

    def values(self, encoding, weights, index):
        return torch.einsum("bhij,bhijd->bhid", weights, self.gathered(encoding.value_vectors, index))

    def make_index(self, n, m):
        ancestors, siblings = self.pair_values(n, m)
        ancestors[..., -1:] = siblings[..., -1:] = 0  # something is left for each query
        return self.relation(ancestors, siblings)


class TestASTTransDense(TestASTTrans):
    encoding = ASTTrans
    options = {"sparse": False, "values": False}
    zero_start = True

    def hidden(self, index):
        return torch.zeros(1, dtype=torch.bool)

    def values(self, encoding, weights, index):
        return 0.0


def test_related_nodes_and_no_others_attend_to_each_other():
    parents = torch.tensor([-1, 0, 0, 1])
    groups = HeadGroups((PAIRS, PAIRS), (1, 1))
    encoding = ASTTrans(2, 4, groups)
    q = torch.randn(1, 2, 4, 4)
    terms = encoding(groups(ancestor_codes(parents, 2), sibling_codes(parents, 2)))
    _, weights = rb.relative_attention(q, q, q, terms, return_weights=True)
    assert (weights[0, 0] > 0).int().tolist() == [[1, 1, 1, 1], [1, 1, 0, 1], [1, 0, 1, 0], [1, 1, 0, 1]]
    assert (weights[0, 1] > 0).int().tolist() == [[1, 0, 0, 0], [0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 1]]


def test_refusals():
    with pytest.raises(ValueError, match="HeadGroups of Pairs for 4 heads, got HeadGroups"):
        ASTTrans(4, 16, HeadGroups((PAIRS, PAIRS), (1, 1)))
    with pytest.raises(ValueError, match="HeadGroups of Pairs for 2 heads"):
        ASTTrans(2, 16, HeadGroups((PAIRS, Hops(3)), (1, 1)))
    with pytest.raises(ValueError, match="use sparse=False"):
        ASTTrans(4, 16, PAIRS).zero_()


def test_the_papers_scale():
    assert ASTTrans(4, 12, PAIRS).paper_scale == pytest.approx(1 / 6)
