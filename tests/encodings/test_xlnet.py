import pytest
import torch
from tests.encodings import test_transformer_xl

import relbias as rb
from relbias.encodings import Segment, XLNet
from relbias.relations import Pairs, Sequence
from relbias.testing import EncodingTestCase
from relbias.testing.cases import BATCH, HEAD_DIM, HEADS


class TestXLNetBothDirections(test_transformer_xl.TestTransformerXL):
    encoding = XLNet
    options = {"bi_data": True}
    sign = 1

    def context(self, encoding, index):
        return {"x": torch.zeros(BATCH, index.shape[0], HEADS * HEAD_DIM)}

    def distance(self, index, i, j):
        return self.sign * super().distance(index, i, j)

    def logits(self, encoding, q, k, scale, index):
        halves = []
        for self.sign, half in ((1, slice(0, BATCH // 2)), (-1, slice(BATCH // 2, BATCH))):
            halves.append(super().logits(encoding, q[half], k[half], scale, index))
        return torch.cat(halves)


class TestSegment(EncodingTestCase):
    encoding = Segment
    relation = Pairs(3)

    def logits(self, encoding, q, k, scale, index):
        n, m = index.shape
        rows = [[encoding.keys[:, self.loop_offset(index, i, j)] for j in range(m)] for i in range(n)]
        keys = torch.stack([torch.stack(row) for row in rows])  # (N, M, H, B, D)
        return scale * (q @ k.mT + torch.einsum("bhnd,nmhbd->bhnm", q + encoding.w[:, None], keys))


def test_both_directions_need_an_even_batch():
    encoding, index = XLNet(4, 16, bi_data=True), Sequence()(5)
    with pytest.raises(ValueError, match="got no x"):
        encoding(index)
    with pytest.raises(ValueError, match="a batch of 3"):
        encoding(index, x=torch.zeros(3, 5, 64))


def test_both_relations_of_a_layer():
    attention = rb.RelativeAttention(64, 4, {"offset": "xlnet", "segment": "segment"}, {"segment": Pairs(2)})
    assert {"encodings.offset.w", "encodings.segment.w"} < {name for name, _ in attention.encoding.named_parameters()}
    x, one = torch.randn(2, 6, 64), torch.zeros(2, 6, 6, dtype=torch.long)
    two = one.clone()
    two[:, :3, 3:] = two[:, 3:, :3] = 1
    same, different = (attention(x, index={"segment": Pairs(2)(codes)}) for codes in (one, two))
    assert (same - different).abs().max() > 1e-5
    attention.encoding.zero_()
    plain = rb.RelativeAttention(64, 4)
    plain.load_state_dict({n: p for n, p in attention.state_dict().items() if not n.startswith("encoding.")})
    with torch.no_grad():
        assert torch.equal(attention(x, index={"segment": Pairs(2)(two)}), plain(x))
