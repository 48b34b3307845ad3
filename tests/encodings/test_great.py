import torch

from relbias.encodings import GREAT
from relbias.relations import EdgeSets
from relbias.testing import EncodingTestCase


class TestGREAT(EncodingTestCase):
    encoding = GREAT
    relation = EdgeSets(num_types=8)  # two tables

    def logits(self, encoding, q, k, scale, index):
        (n, m), keys = index.shape, k.sum(dim=-1)
        numbers = [sum(e * p for e, p in zip(row, encoding.projection, strict=True)) for row in encoding.embeddings]
        batches = []
        for b in range(2):
            rows = []
            for i in range(n):
                sets = [int(index.sets[b, 0, i, j]) for j in range(m)]
                biases = [sum((numbers[t] for t in range(8) if s & 2**t), q.new_zeros(())) for s in sets]
                rows.append(torch.stack(biases) * keys[b])  # (H, M)
            batches.append(torch.stack(rows, dim=1))
        return scale * (q @ k.mT + torch.stack(batches))


def test_every_type_has_its_own_number():
    """Each pair has one type: what its code reads is that type's number, in whichever table it is."""
    for count in (1, 5, 6, 7, 13, 20):
        encoding = GREAT(2, 3, EdgeSets(count)).double()
        with torch.no_grad():
            encoding.projection.copy_(torch.tensor([1.0, 0.0, 0.0]))
            encoding.embeddings[:, 0] = torch.arange(count) + 1.0
        terms = encoding(EdgeSets(count)(2 ** torch.arange(count)[None]))
        read = sum(entry.Q[0, entry.index.codes()[0, 0, 0], 0] for entry in terms.entries)
        assert read.tolist() == list(range(1, count + 1))
        assert max(entry.Q.shape[1] for entry in terms.entries) <= 64
