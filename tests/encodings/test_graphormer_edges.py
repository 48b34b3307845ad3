import torch

from relbias.encodings import GraphormerEdges
from relbias.relations import EdgePaths
from relbias.testing import EncodingTestCase


class TestGraphormerEdges(EncodingTestCase):
    encoding = GraphormerEdges
    relation = EdgePaths(num_types=4, max_edges=3)

    def logits(self, encoding, q, k, scale, index):
        n, m = index.shape
        biases = []
        for b in range(2):
            for i in range(n):
                for j in range(m):
                    path = [t for t in index.values[b, i, j].tolist() if t >= 0]
                    edges = [encoding.embeddings[t] @ encoding.weights[place] for place, t in enumerate(path)]
                    biases.append(sum(edges, torch.zeros(4, dtype=torch.float64)) / max(len(path), 1))
        return scale * q @ k.mT + torch.stack(biases).view(2, n, m, 4).movedim(-1, 1)


def test_a_pair_without_a_path_gets_nothing():
    relation = EdgePaths(4, 3, prefix_tokens=1)
    (entry,) = GraphormerEdges(2, 4, relation)(relation(torch.full((2, 2, 3), 1))).entries
    bias = entry.b(slice(None))[0]
    assert not bias[:, 0].any()
    assert not bias[:, :, 0].any()
    assert bias[:, 1:, 1:].all()
