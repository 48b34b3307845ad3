"""GRPE's two relations against a loop over the paper's formulas, with a graph token whose pairs share one code."""

from __future__ import annotations

import torch

import relbias as rb

HEADS, SIZE, FARTHEST, TYPES = 2, 4, 2, 3
# A path of four nodes, an edge with other types, and a node without edges.
EDGES = {(0, 1): 0, (1, 0): 0, (1, 2): 2, (2, 1): 1, (2, 3): 1, (3, 2): 2}
NODES = 5


def topology_code(i: int, j: int) -> int:
    """Distances, far, unreachable, then the graph token's one code; token 0 is the graph token."""
    if i == 0 or j == 0:
        return FARTHEST + 3
    if (i == NODES) != (j == NODES):
        return FARTHEST + 2
    return min(abs(i - j), FARTHEST + 1)


def edge_code(i: int, j: int) -> int:
    """Types, no edge, self, then the graph token's code."""
    if i == 0 or j == 0:
        return TYPES + 2
    return TYPES + 1 if i == j else EDGES.get((i - 1, j - 1), TYPES)


def test_equals_the_papers_formula(dtype, assert_same):
    generator = torch.Generator().manual_seed(0)

    def tensor(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(dtype).requires_grad_()

    n = NODES + 1
    q, k, v = (tensor(1, HEADS, n, SIZE) for _ in range(3))
    topology = [tensor(HEADS, FARTHEST + 4, SIZE) for _ in range(3)]  # for the query, the key and the value
    edges = [tensor(HEADS, TYPES + 3, SIZE) for _ in range(3)]
    out = []
    for h in range(HEADS):
        for i in range(n):
            logits, values = [], []
            for j in range(n):
                p, e = topology_code(i, j), edge_code(i, j)
                query_terms = q[0, h, i] @ topology[0][h, p] + q[0, h, i] @ edges[0][h, e]
                key_terms = k[0, h, j] @ topology[1][h, p] + k[0, h, j] @ edges[1][h, e]
                logits.append((q[0, h, i] @ k[0, h, j] + query_terms + key_terms) / SIZE**0.5)
                values.append(v[0, h, j] + topology[2][h, p] + edges[2][h, e])
            weights = torch.stack(logits).softmax(dim=0)
            out.append(sum(w * x for w, x in zip(weights, values, strict=True)))
    theirs = torch.stack(out).view(1, HEADS, n, SIZE)

    relations = {"hops": rb.relations.Hops(FARTHEST, prefix_tokens=1), "edges": rb.relations.Pairs(TYPES + 3)}
    encoding = rb.create_encoding({"hops": "grpe", "edges": "grpe"}, HEADS, SIZE, relations).to(dtype)
    with torch.no_grad():
        for module, tables in ((encoding.encodings["hops"], topology), (encoding.encodings["edges"], edges)):
            ours = (module.query_vectors, module.key_vectors, module.value_vectors)
            for mine, table in zip(ours, tables, strict=True):
                shared = table[:, -1:].expand(-1, mine.shape[1] - table.shape[1], -1)
                mine.copy_(torch.cat((table, shared), dim=1))
    distances = torch.tensor(
        [[-1 if (i == NODES - 1) != (j == NODES - 1) else abs(i - j) for j in range(NODES)] for i in range(NODES)]
    )
    pairs = torch.tensor(list(EDGES)).T
    codes = rb.relations.edge_types(pairs, torch.tensor(list(EDGES.values())), NODES, TYPES, prefix_tokens=1)
    index = {"hops": relations["hops"](distances), "edges": relations["edges"](codes)}
    ours = rb.relative_attention(q, k, v, encoding(index))

    tables = [t for name in ("hops", "edges") for t in encoding.encodings[name].parameters()]
    our_gradients = [*torch.autograd.grad(ours.square().sum(), [q, k, v, *tables], retain_graph=True)]
    # One code of the graph token stands for three of ours: its gradient is their sum.
    merged = [
        g if g.shape[:2] == q.shape[:2] else torch.cat((g[:, : t.shape[1] - 1], g[:, t.shape[1] - 1 :].sum(1, True)), 1)
        for g, t in zip(our_gradients, [q, k, v, *topology, *edges], strict=True)
    ]
    wanted = torch.autograd.grad(theirs.square().sum(), [q, k, v, *topology, *edges])
    tolerance = {"rtol": 0.0, "atol": 1e-9 if dtype == torch.float64 else 1e-4}
    torch.testing.assert_close(ours, theirs, **tolerance)
    for mine, expected in zip(merged, wanted, strict=True):
        assert expected.abs().max() > 1e-3
        torch.testing.assert_close(mine, expected, **tolerance)
