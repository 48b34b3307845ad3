import copy

import pytest
import torch
from torch.nn import functional as F

import relbias as rb
from relbias.models import GraphTransformer, TransformerBlock
from relbias.relations import shortest_paths

SMALL = {"num_outputs": 3, "dim": 16, "depth": 2, "num_heads": 2}
PATHS = {"hops": "table", "edges": "graphormer_edges"}
READOUTS = ["token", "mean", "sum", "nodes"]


def make(encoding="table", seed=0, **options):
    torch.manual_seed(seed)
    model = GraphTransformer(encoding, **{"node_types": 5, **SMALL, **options}).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model


def both_ways(*edges):
    pairs = [pair for i, j in edges for pair in ((i, j), (j, i))]
    return torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T.contiguous()


# A path, a disconnected graph with an isolated last node, one node, and an edge in one direction.
GRAPHS = [(4, both_ways((0, 1), (1, 2), (2, 3))), (6, both_ways((0, 1), (1, 2), (2, 0), (3, 4)))]
GRAPHS += [(1, both_ways()), (2, torch.tensor([[0], [1]]))]

UNDIRECTED = GRAPHS[:3]


def collate(graphs, seed=0):
    """x, edge_index, edge_attr and batch, as PyG joins graphs."""
    generator = torch.Generator().manual_seed(seed)
    starts = torch.tensor([0, *(n for n, _ in graphs)]).cumsum(0)
    x = torch.randint(0, 5, (int(starts[-1]),), generator=generator)
    edges = torch.cat([edges + start for (_, edges), start in zip(graphs, starts[:-1], strict=True)], dim=1)
    types = (edges[0] * edges[1]) % 3  # alike in both directions
    batch = torch.repeat_interleave(torch.arange(len(graphs)), torch.tensor([n for n, _ in graphs]))
    return x, edges, types, batch


def one_by_one(model, x, edges, types, batch, pos=None):
    out = []
    for graph in batch.unique():
        nodes = (batch == graph).nonzero()[:, 0]
        own = batch[edges[0]] == graph
        place = None if pos is None else pos[nodes]
        out.append(model(x[nodes], edges[:, own] - nodes[0], types[own], pos=place))
    return torch.cat(out)


@pytest.mark.parametrize("readout", READOUTS)
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_batch_equals_its_graphs_one_by_one(readout, norm):
    model, data = make(readout=readout, norm=norm, max_degree=2), collate(GRAPHS)
    together = model(*data)
    assert together.shape == (len(data[0]) if readout == "nodes" else len(GRAPHS), 3)
    torch.testing.assert_close(together, one_by_one(model, *data), rtol=0, atol=1e-10)
    torch.testing.assert_close(model.float()(*data).double(), together, rtol=1e-5, atol=1e-5)


def test_the_sum_is_the_mean_times_the_nodes_by_the_root_of_the_width():
    model, data = make(readout="mean"), collate(GRAPHS)
    model.head.bias.data.zero_()
    mean, sizes = model(*data), torch.tensor([[float(n)] for n, _ in GRAPHS], dtype=torch.float64)
    model.readout = "sum"
    torch.testing.assert_close(model(*data), mean * sizes / model.head.in_features**0.5, rtol=0, atol=1e-10)


@pytest.mark.parametrize("readout", READOUTS)
def test_the_order_of_nodes_does_not_matter(readout):
    model, (x, edges, types, batch) = make(readout=readout, max_degree=2), collate(GRAPHS)
    order = torch.cat([nodes[torch.randperm(len(nodes))] for nodes in ((batch == b).nonzero()[:, 0] for b in range(4))])
    new = order.argsort()  # where a node stands now
    out, moved = model(x, edges, types, batch), model(x[order], new[edges], types, batch)
    torch.testing.assert_close(moved, out[order] if readout == "nodes" else out, rtol=0, atol=1e-10)


MIXTURES = ["none", "table", "grpe", {"hops": "table", "edge_types": "table"}, {"walks": "feature_mlp"}]
MIXTURES += [PATHS]
MIXTURES += [{"hops": "grpe", "resistance": "feature_mlp", "distances": "gaussian_3d", "edge_types": "grpe"}]


@pytest.mark.parametrize("encoding", MIXTURES, ids=str)
@pytest.mark.parametrize("readout", READOUTS)
def test_every_parameter_is_trained(encoding, readout):
    model = make(encoding, readout=readout, edge_types=3, max_degree=2, max_hops=1, walk_steps=4)
    x, edges, types, batch = collate(UNDIRECTED)
    out = model(x, edges, types, batch, pos=torch.randn(len(x), 3))
    F.mse_loss(out, torch.randn_like(out)).backward()
    names = {n for n, p in model.named_parameters() if p.grad is None or p.grad.abs().max() < 1e-12}
    # A bias of the keys, or of all pairs, shifts all logits of a query alike. So does that of the pairs with the graph
    # token, which share a code: nothing else is read of the last block.
    idle = ("k_proj.bias", "out.bias", *(["blocks.1.attention.encoding"] if readout == "token" else []))
    assert all(any(part in name for part in idle) for name in names), names


@pytest.mark.parametrize("encoding", MIXTURES[3:], ids=str)
@pytest.mark.parametrize("readout", READOUTS)
def test_mixtures_of_a_batch_equal_those_of_its_graphs(encoding, readout):
    model = make(encoding, readout=readout, edge_types=3, walk_steps=4)
    x, edges, types, batch = collate(UNDIRECTED)
    pos = torch.randn(len(x), 3, dtype=torch.float64)
    out = model(x, edges, types, batch, pos=pos)
    # Walks and resistances are made in float32.
    torch.testing.assert_close(out, one_by_one(model, x, edges, types, batch, pos), rtol=1e-5, atol=1e-5)


def test_structure_is_seen_through_hops_alone():
    x, chain, ring = torch.zeros(6, dtype=torch.long), both_ways(*((i, i + 1) for i in range(5))), None
    ring = both_ways(*((i, (i + 1) % 6) for i in range(6)))
    for encoding, equal in (("none", True), ("table", False)):
        model = make(encoding)
        assert torch.allclose(model(x, chain), model(x, ring)) == equal


def test_graphs_without_nodes_give_what_the_token_says_alone():
    x, edges, types, batch = collate(GRAPHS)
    batch = batch + (batch > 1)  # graph 2 has no nodes
    for readout in READOUTS:
        model = make(readout=readout)
        out, without = model(x, edges, types, batch, num_graphs=7), model(x, edges, types, collate(GRAPHS)[3])
        if readout == "nodes":
            torch.testing.assert_close(out, without)
            continue
        assert out.shape == (7, 3)
        torch.testing.assert_close(out[[0, 1, 3, 4]], without)
        torch.testing.assert_close(out[[2, 6]], out[[5, 5]])
        nothing = model(x[:0], edges[:, :0], types[:0], batch[:0], num_graphs=2)
        torch.testing.assert_close(nothing, out[[2, 2]])


def test_hops_made_beforehand_give_the_same():
    model, (x, edges, types, batch) = make(), collate(GRAPHS)
    flat = []
    for graph, (n, own) in enumerate(GRAPHS):
        flat.append(shortest_paths(own, n).flatten())
        assert len(flat[graph]) == n * n
    hops = torch.cat(flat)
    out = model(x, edges, types, batch)
    torch.testing.assert_close(model(x, edges, types, batch, hops=hops), out, rtol=0, atol=0)
    torch.testing.assert_close(model(x, edges, types, batch, hops=None), out, rtol=0, atol=0)
    assert not torch.allclose(model(x, edges, types, batch, hops=hops.clamp(max=1)), out)
    with pytest.raises(ValueError, match="did you mean 'hops'"):
        model(x, edges, types, batch, hop=hops)


def test_one_encoding_for_all_blocks():
    model = make(shared=True)
    assert model.blocks[0].attention.encoding is model.blocks[1].attention.encoding
    other = make(shared=True, seed=1)
    other.load_state_dict(model.state_dict())
    data = collate(GRAPHS)
    torch.testing.assert_close(other(*data), model(*data))
    assert sum(p.numel() for p in make().parameters()) - sum(p.numel() for p in model.parameters()) == 2 * 24


def test_starts_anew_copies_and_goes_through_the_meta_device():
    data = collate(GRAPHS)
    for options in ({}, {"node_types": None, "readout": "mean"}, {"norm": "post", "max_degree": 3}):
        options = {"node_types": 5, **SMALL, **options}
        x = None if options["node_types"] is None else data[0]
        torch.manual_seed(0)
        model = GraphTransformer(**options).eval()
        again = GraphTransformer(**options, device="meta").to_empty(device="cpu").eval()
        torch.manual_seed(0)
        again.reset_parameters()
        torch.manual_seed(0)
        model.reset_parameters()
        out = model(x, *data[1:])
        torch.testing.assert_close(again(x, *data[1:]), out)
        twin = copy.deepcopy(model)
        twin.load_state_dict(model.state_dict())
        torch.testing.assert_close(twin(x, *data[1:]), out)


def test_runs_in_half_precision():
    model, data = make(max_degree=2).float(), collate(GRAPHS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = model(*data)
    torch.testing.assert_close(half.float(), model(*data), rtol=0.1, atol=0.1)


@pytest.mark.slow
def test_runs_compiled():
    model = make(PATHS, max_degree=2, edge_types=3, depth=1).float()
    compiled = torch.compile(model, backend="aot_eager")
    for data in (collate(GRAPHS), collate(GRAPHS[:2], seed=1)):
        out = model(*data)
        torch.testing.assert_close(compiled(*data), out)
        gradients = torch.autograd.grad(out.sum(), model.token), torch.autograd.grad(compiled(*data).sum(), model.token)
        torch.testing.assert_close(*gradients)


def test_norm_after_the_sum():
    block = TransformerBlock(8, 2, norm="post").double()
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(1, 3, 8, dtype=torch.float64)
    middle = F.layer_norm(x + block.attention(x), (8,), block.norm1.weight, block.norm1.bias)
    out = F.layer_norm(middle + block.mlp(middle), (8,), block.norm2.weight, block.norm2.bias)
    torch.testing.assert_close(block(x), out)
    with pytest.raises(ValueError, match='norm is "pre" or "post"'):
        TransformerBlock(8, 2, norm="Post")


@pytest.mark.parametrize(
    ("encoding", "options", "message"),
    [
        ("tabel", {}, "did you mean 'table'"),
        ({"hop": "table"}, {}, "no relation of graphs 'hop'; did you mean 'hops'"),
        ("t5", {}, "'t5' takes the relation Sequence"),
        ("learned", {}, "'learned' is applied at the input"),
        ({"hops": "sinusoidal"}, {}, "'sinusoidal' is applied at the input"),
        (rb.create_encoding("t5", 2, 8), {}, "cannot be made from graphs"),
        (rb.create_encoding("table", 2, 8, rb.relations.Hops(3)), {}, "build it with prefix_tokens=1"),
        ("table", {"readout": "max"}, "readout is one of token, mean, sum, nodes"),
        ("table", {"dim": 15}, "dim must be a multiple of num_heads"),
        ("table", {"num_outputs": 0}, "num_outputs must be an integer of at least 1"),
        ("table", {"node_features": 3}, "and not both"),
        ("table", {"edge_types": 3, "edge_features": 3}, "and not both"),
        ("table", {"node_types": []}, "got an empty list"),
        ("table", {"max_degree": -1}, "max_degree must be"),
    ],
    ids=str,
)
def test_refuses(encoding, options, message):
    with pytest.raises(ValueError, match=message):
        GraphTransformer(encoding, **{"node_types": 5, **SMALL, **options})


def test_types_of_edges_in_any_form():
    model, (x, edges, types, batch) = make(PATHS, edge_types=3), collate(GRAPHS)
    out = model(x, edges, types, batch)
    for given in (types[:, None], types.int(), types.double(), types[:, None].float()):
        torch.testing.assert_close(model(x, edges, given, batch), out, rtol=0, atol=0)
    assert not torch.allclose(model(x, edges, (types + 1) % 3, batch), out)


def test_several_types_and_features_of_edges():
    x, edges, types, batch = collate(GRAPHS)
    both = torch.stack((types, types % 2), dim=1)
    model = make(PATHS, edge_types=[3, 2])
    for changed in (torch.stack((types, 1 - types % 2), dim=1), torch.stack(((types + 1) % 3, types % 2), dim=1)):
        assert not torch.allclose(model(x, edges, changed, batch), model(x, edges, both, batch))
    # A number of types for each column, one-hot, is the same as features of edges but for the mean over columns.
    numbers, embeddings = make(PATHS, edge_features=5), "blocks.{}.attention.encoding.encodings.edges.embeddings"
    state = model.state_dict()
    for block in range(2):
        state[embeddings.format(block)] = state[embeddings.format(block)] / 2
    numbers.load_state_dict(state)
    one_hot = torch.cat((F.one_hot(types, 3), F.one_hot(types % 2, 2)), dim=1).float()
    torch.testing.assert_close(numbers(x, edges, one_hot, batch), model(x, edges, both, batch), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("encoding", [PATHS, {"edge_types": "table"}], ids=str)
def test_edges_of_one_kind_need_no_attributes(encoding):
    x, edges, types, batch = collate(GRAPHS)
    model = make(encoding)
    out = model(x, edges, None, batch)
    torch.testing.assert_close(model(x, edges, torch.zeros_like(types), batch), out)
    for graphs in ([GRAPHS[2]], [GRAPHS[2], GRAPHS[2]]):  # no edges at all
        assert model(*collate(graphs)).isfinite().all()


def test_attributes_of_edges_that_nobody_reads_are_left_alone():
    x, edges, types, batch = collate(GRAPHS)
    for options in ({}, {"edge_types": 2}, {"edge_features": 7}):
        model = make(**options)
        torch.testing.assert_close(model(x, edges, types * torch.nan, batch), model(x, edges, None, batch))


@pytest.mark.parametrize("encoding", [PATHS, {"edge_types": "table"}], ids=str)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda types: types + 1, "edge_attr holds 3, expected categories from 0 to 2; give edge_types=4 or more"),
        (lambda types: types - 0.5, "edge_attr holds .*; for real numbers give edge_features instead of edge_types"),
        (lambda types: types * torch.nan, "edge_attr holds nan"),
        (lambda types: types[1:], "edge_attr has 14 rows for 15 edges; give one for each"),
        (lambda types: types[:, None].expand(-1, 2), "edge_attr must have shape .* give edge_types a number"),
        (lambda types: None, "the graphs have no edge_attr; pass edge_attr, or build the model without edge_types"),
    ],
)
def test_says_what_is_wrong_with_edges(encoding, change, message):
    model, (x, edges, types, batch) = make(encoding, edge_types=3), collate(GRAPHS)
    with pytest.raises(ValueError, match=message) as caught:
        model(x, edges, change(types), batch)
    assert "\n" not in str(caught.value)


def test_says_what_else_is_wrong():
    x, edges, types, batch = collate(GRAPHS)
    model = make(PATHS, edge_features=1)
    with pytest.raises(ValueError, match="edge_attr holds nan in row 0, column 0; fill in or leave out"):
        model(x, edges, torch.full((len(types),), torch.nan), batch)
    with pytest.raises(ValueError, match="no edge_attr; pass edge_attr, or build the model without edge_features"):
        model(x, edges, None, batch)
    with pytest.raises(ValueError, match="give edge_types, not edge_features"):
        make({"edge_types": "table"}, edge_features=1)
    with pytest.raises(ValueError, match="the graphs have no pos"):
        make({"distances": "gaussian_3d"})(x, edges, None, batch)
    for num_graphs, message in ((3, "num_graphs is 3, and the batch has graph 3"), (-1, "num_graphs must be")):
        with pytest.raises(ValueError, match=message):
            make()(x, edges, None, batch, num_graphs=num_graphs)
    with pytest.raises(ValueError, match="without x the number of nodes is unknown; pass batch"):
        make(node_types=None)(None, edges)
    with pytest.raises(ValueError, match=r"x must have shape \(n,\) or \(n, 1\)"):
        make()(x[:, None, None], edges, None, batch)
