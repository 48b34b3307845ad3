"""A training step of Graphormer-slim against the published equations in loops over graphs, nodes, heads and edges."""

from __future__ import annotations

import math

import networkx as nx
import pytest
import torch
from torch import Tensor

from relbias.models import GraphTransformer

HOPS, PATH_EDGES, DEGREES, ATOMS, BONDS = 37, 40, 63, 64, 64
SLIM = {
    "num_outputs": 1,
    "node_types": ATOMS,
    "edge_types": BONDS,
    "dim": 80,
    "depth": 12,
    "num_heads": 8,
    "mlp_ratio": 1.0,
    "max_degree": DEGREES,
    "max_hops": HOPS,
    "path_edges": PATH_EDGES,
    "shared": True,
}
ENCODING = {"hops": "table", "edges": "graphormer_edges"}


@pytest.mark.parametrize(("norm", "final"), [("post", 0), ("pre", 2 * 80)])
def test_has_the_published_number_of_parameters(norm, final):
    model = GraphTransformer(ENCODING, **SLIM, norm=norm)
    block = 4 * (80 * 80 + 80) + 2 * (80 * 80 + 80) + 2 * 2 * 80
    hops, graph_token_distance = 40 * 8, 8
    edges, places = BONDS * 8, PATH_EDGES * 8 * 8
    degrees, atoms, graph_token, head = 2 * 64 * 80, ATOMS * 80, 80, 80 + 1
    assert block == 39_200
    expected = 12 * block + hops + graph_token_distance + edges + places + degrees + atoms + graph_token + head + final
    assert expected == (489_321 if norm == "post" else 489_481)
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


def first_edges(graph: nx.DiGraph, arriving: dict[int, list[tuple[int, int]]], i: int) -> dict[int, list[int]]:
    """The kinds of the edges from i to each node that it reaches; of several paths that whose last edge comes first."""
    distances = nx.single_source_shortest_path_length(graph, i)
    paths: dict[int, list[int]] = {i: []}
    for j in sorted(distances, key=distances.get):
        if j != i:
            before, kind = next((u, kind) for u, kind in arriving[j] if distances.get(u) == distances[j] - 1)
            paths[j] = [*paths[before], kind]
    return paths


def pair_biases(w: dict[str, Tensor], nodes: int, edges: list[tuple[int, int, int]]) -> list[list[Tensor]]:
    """b[i][j], one number for each head, of the tokens of a graph, the graph token first."""
    spatial, kinds, places = (w[f"blocks.0.attention.encoding.encodings.{name}"] for name in NAMES)
    graph = nx.DiGraph([(u, v) for u, v, _ in edges])
    graph.add_nodes_from(range(nodes))
    arriving: dict[int, list[tuple[int, int]]] = {node: [] for node in graph}
    for u, v, kind in edges:
        arriving[v].append((u, kind))
    token = spatial[:, HOPS + 3]
    bias = [[token] * (nodes + 1)]
    for i in range(nodes):
        paths, row = first_edges(graph, arriving, i), [token]
        for j in range(nodes):
            if j not in paths:
                row.append(spatial[:, HOPS + 2])
                continue
            b = spatial[:, min(len(paths[j]), HOPS + 1)]
            counted = paths[j][:PATH_EDGES]
            for place, kind in enumerate(counted):
                b = b + kinds[kind] @ places[place] / len(counted)
            row.append(b)
        bias.append(row)
    return bias


NAMES = ("hops.table", "edges.embeddings", "edges.weights")


def norm(w: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    centered = x - x.mean()
    return centered / ((centered**2).mean() + 1e-5).sqrt() * w[f"{name}.weight"] + w[f"{name}.bias"]


def linear(w: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    return w[f"{name}.weight"] @ x + w[f"{name}.bias"]


def attend(w: dict[str, Tensor], name: str, tokens: list[Tensor], bias: list[list[Tensor]], heads: int) -> list[Tensor]:
    q, k, v = ([linear(w, f"{name}.{kind}_proj", x) for x in tokens] for kind in "qkv")
    size = len(q[0]) // heads
    parts = [slice(head * size, (head + 1) * size) for head in range(heads)]
    result = []
    for i in range(len(tokens)):
        attended = []
        for head, part in enumerate(parts):
            logits = [q[i][part] @ k[j][part] / math.sqrt(size) + bias[i][j][head] for j in range(len(tokens))]
            weights = torch.stack(logits).softmax(dim=0)
            attended.append(sum(weights[j] * v[j][part] for j in range(len(tokens))))
        result.append(linear(w, f"{name}.out_proj", torch.cat(attended)))
    return result


def feed_forward(w: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    hidden = linear(w, f"{name}.0", x)
    return linear(w, f"{name}.2", hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2))))


def graphormer(
    w: dict[str, Tensor], atoms: list[int], edges: list[tuple[int, int, int]], depth: int, heads: int, where: str
) -> Tensor:
    """The output of one graph, whose edges are (node, node, kind)."""
    tokens = [w["token"]]
    for node, atom in enumerate(atoms):
        arrive, leave = sum(v == node for _, v, _ in edges), sum(u == node for u, _, _ in edges)
        degrees = w["nodes.in_degree.weight"][min(arrive, DEGREES)] + w["nodes.out_degree.weight"][min(leave, DEGREES)]
        tokens.append(w["nodes.categories.0.weight"][atom] + degrees)
    bias = pair_biases(w, len(atoms), edges)
    for number in range(depth):
        name = f"blocks.{number}"
        if where == "pre":
            attended = attend(w, f"{name}.attention", [norm(w, f"{name}.norm1", x) for x in tokens], bias, heads)
            tokens = [x + a for x, a in zip(tokens, attended, strict=True)]
            tokens = [x + feed_forward(w, f"{name}.mlp", norm(w, f"{name}.norm2", x)) for x in tokens]
        else:
            attended = attend(w, f"{name}.attention", tokens, bias, heads)
            tokens = [norm(w, f"{name}.norm1", x + a) for x, a in zip(tokens, attended, strict=True)]
            tokens = [norm(w, f"{name}.norm2", x + feed_forward(w, f"{name}.mlp", x)) for x in tokens]
    first = norm(w, "norm", tokens[0]) if where == "pre" else tokens[0]
    return linear(w, "head", first)


def molecules(seed: int) -> list[tuple[list[int], list[tuple[int, int, int]]]]:
    """Rings and trees, one of two pieces, one atom without edges, and one with edges in one direction."""
    kinds, graphs = torch.Generator().manual_seed(seed), []
    for graph in (
        nx.cycle_graph(6),
        nx.disjoint_union(nx.path_graph(7), nx.star_graph(3)),
        nx.empty_graph(1),
        nx.compose(nx.cycle_graph(5), nx.Graph([(4, 5), (5, 6), (6, 7), (7, 4)])),
        nx.DiGraph([(0, 1), (1, 2), (2, 0), (2, 3)]),
    ):
        edges = []
        for u, v in graph.edges:
            kind = int(torch.randint(0, BONDS, (), generator=kinds))
            edges += [(u, v, kind)] if graph.is_directed() else [(u, v, kind), (v, u, kind)]
        graphs.append((torch.randint(0, ATOMS, (len(graph),), generator=kinds).tolist(), edges))
    return graphs


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"dim": 8, "depth": 2, "num_heads": 2}, "post"),
        ({"dim": 8, "depth": 2, "num_heads": 2}, "pre"),
        pytest.param({}, "post", marks=pytest.mark.slow),
    ],
    ids=["small-post", "small-pre", "slim"],
)
def test_a_training_step(options, where):
    torch.manual_seed(0)
    options = {**SLIM, **options}
    model = GraphTransformer(ENCODING, **options, norm=where, dtype=torch.float64)
    for name, parameter in model.named_parameters():
        mean = float("norm" in name and name.endswith("weight"))
        torch.nn.init.normal_(parameter, mean, 0.3 if parameter.ndim == 1 else 1 / math.sqrt(parameter.shape[-1]))
    graphs = molecules(seed=1)
    targets = torch.randn(len(graphs), 1, dtype=torch.float64)

    copies = {name: parameter.detach().clone().requires_grad_() for name, parameter in model.named_parameters()}
    depth, heads = options["depth"], options["num_heads"]
    theirs = torch.stack([graphormer(copies, *graph, depth, heads, where) for graph in graphs])
    their_loss = (theirs - targets).abs().mean()
    their_loss.backward()

    starts = torch.tensor([0, *(len(atoms) for atoms, _ in graphs)]).cumsum(0).tolist()
    x = torch.tensor([atom for atoms, _ in graphs for atom in atoms])
    edges = [(u + start, v + start, kind) for (_, e), start in zip(graphs, starts, strict=False) for u, v, kind in e]
    first, second, kinds = torch.tensor(edges).T
    batch = torch.tensor([number for number, (atoms, _) in enumerate(graphs) for _ in atoms])
    ours = model(x, torch.stack((first, second)), kinds, batch)
    loss = (ours - targets).abs().mean()
    loss.backward()

    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(loss, their_loss, rtol=1e-9, atol=1e-9)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, copies[name].grad, rtol=1e-8, atol=1e-10, msg=name)
        if not name.endswith("k_proj.bias"):  # a bias of the keys shifts all logits of a query alike
            assert parameter.grad.abs().max() > 1e-6, f"the gradient of {name} is zero, so it shows nothing"
