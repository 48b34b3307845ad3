"""What a GPSConv computes with an encoding."""

import math

import pytest
import torch
from tests.plugins.pyg.gps import GPS, batch_of_traps, call, make
from tests.plugins.pyg.graphs import random_graph, traps
from torch_geometric import EdgeIndex, Index
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GPSConv
from torch_geometric.utils import to_dense_batch

import relbias as rb
from relbias.plugins.binding import bound
from relbias.plugins.pyg import attach, detach, graph_batch

ENCODINGS = ["table", "grpe", {"hops": "table", "walks": "feature_mlp", "resistance": "feature_mlp"}]


@pytest.fixture
def unfused():
    """Turns off torch's fused inference, whose numbers differ by rounding."""
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(True)


def train(model):
    """Moves every encoding away from its start, as training would; equal models are moved equally."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, rb.Encoding):
                for parameter in module.parameters():
                    parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))


def attached(encoding="table", relation=None, trained=True, **options):
    model = make(**options)
    attach(model, encoding, relation=relation)
    if trained:
        train(model)
    return model


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_starts_as_the_host(encoding, unfused):
    data = batch_of_traps()
    host, model = make(norm="layer_norm"), attached(encoding, trained=False, norm="layer_norm")
    with torch.no_grad():
        expected = call(host, data)
        assert (call(model, data) - expected).abs().max() == 0.0
        train(model)
        assert (call(model, data) - expected).abs().max() > 1e-2
    fresh = attached(encoding, trained=False, norm="layer_norm")
    assert (call(fresh, data) - expected).abs().max() <= 1e-6


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_new_parameters_get_gradients_from_the_start(encoding):
    model = attached(encoding, trained=False).train()
    call(model, batch_of_traps()).square().sum().backward()
    for conv in model.convs:
        assert any(p.grad is not None and p.grad.any() for p in conv.attn.encoding.parameters())
        assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_is_the_hosts_attention_with_the_bias_as_its_mask():
    """nn.MultiheadAttention with the table's numbers, looked up pair by pair, as a mask that is added."""
    data = Batch.from_data_list([graph for graph in traps() if graph.num_nodes])
    data.x = data.x.double()
    host = make(depth=1, norm=None).double()
    model = attached(depth=1, norm=None).double()
    table = model.convs[0].attn.encoding.table.detach().clone().requires_grad_()
    hops = graph_batch(data).distances.tolist()
    size = len(hops[0])
    code = torch.tensor([[[22 if d < 0 else min(d, 21) for d in row] for row in graph] for graph in hops])
    bias = table.squeeze()[:, code].transpose(0, 1)
    conv = host.convs[0]
    x, edges = host.node(data.x), host.edge(data.edge_attr)
    dense, there = to_dense_batch(x, data.batch)
    mask = bias.masked_fill(~there[:, None, None], -math.inf).flatten(0, 1)
    assert mask.shape == (len(hops) * 4, size, size)
    attended = conv.attn(dense, dense, dense, attn_mask=mask, need_weights=False)[0][there] + x
    local = conv.conv(x, data.edge_index, edge_attr=edges) + x
    expected = attended + local
    expected = expected + conv.mlp(expected)
    got = call(model, data)
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)
    weights = torch.randn(got.shape, dtype=torch.float64)
    (got * weights).sum().backward()
    (expected * weights).sum().backward()
    torch.testing.assert_close(model.convs[0].attn.encoding.table.grad, table.grad, rtol=1e-9, atol=1e-9)
    ours = dict(model.named_parameters())
    for name, parameter in host.named_parameters():
        torch.testing.assert_close(ours[name].grad, parameter.grad, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_a_batch_is_its_graphs_one_by_one(encoding):
    model, graphs = attached(encoding).double(), traps()
    empty = random_graph(0, 0, 9)
    for data in (empty, *graphs):
        data.x = data.x.double()
    alone = torch.cat([call(model, graph) for graph in graphs])  # batch=None
    for several in (graphs, [*graphs[:3], empty, *graphs[3:]], [empty, *graphs, empty]):
        together = call(model, Batch.from_data_list(several))
        torch.testing.assert_close(together, alone, rtol=0, atol=1e-6)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_the_order_of_nodes_does_not_matter(encoding):
    model = attached(encoding).double()
    data = random_graph(12, 16, 2)
    data.x = data.x.double()
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    other = Data(x=data.x[order], edge_index=order.argsort()[data.edge_index], edge_attr=data.edge_attr)
    torch.testing.assert_close(call(model, other), call(model, data)[order], rtol=0, atol=1e-6)


def test_kinds_of_indices_of_pyg():
    model, data = attached(), batch_of_traps()
    expected = call(model, data)
    data.edge_index = EdgeIndex(data.edge_index, sparse_size=(45, 45))
    data.batch = Index(data.batch)
    graphs = []
    model.convs[0].attn.encoding.register_forward_pre_hook(lambda module, args: graphs.append(bound().graphs))
    assert torch.equal(call(model, data), expected)
    assert type(graphs[0].edge_index) is type(graphs[0].batch) is torch.Tensor


def test_edges_are_followed_from_first_to_second():
    path = Data(x=torch.randn(3, 4), edge_index=torch.tensor([[0, 1], [1, 2]]), edge_attr=torch.zeros(2, dtype=int))
    conv = make(depth=1).convs[0]
    attach(conv, "table")
    index = []
    conv.attn.encoding.register_forward_pre_hook(lambda module, args: index.append(args[0]))
    conv(torch.randn(3, 16), path.edge_index, edge_attr=torch.zeros(2, 16))
    assert index[0].distances.tolist() == [[[[0, 1, 2], [-1, 0, 1], [-1, -1, 0]]]]


def test_relations_of_edges_are_made_from_edge_attr_and_pos():
    conv = GPSConv(16, None, heads=4).eval()
    attach(
        conv,
        {"edge_types": "table", "distances": "gaussian_3d"},
        relation={"edge_types": rb.relations.EdgeTypes(3), "distances": rb.relations.Distances()},
    )
    train(conv)
    data = random_graph(6, 9, 3)
    x = torch.randn(6, 16)
    one = conv(x, data.edge_index, edge_attr=data.edge_attr, pos=data.pos)
    assert not torch.allclose(one, conv(x, data.edge_index, edge_attr=2 - data.edge_attr, pos=data.pos))
    assert not torch.allclose(one, conv(x, data.edge_index, edge_attr=data.edge_attr, pos=2 * data.pos))
    with pytest.raises(ValueError, match="no edge_attr"):
        conv(x, data.edge_index, pos=data.pos)
    with pytest.raises(ValueError, match="no pos"):
        conv(x, data.edge_index, edge_attr=data.edge_attr)


def test_captured():
    model, data = attached(), batch_of_traps()
    with rb.capture(model) as captured:
        call(model, data)
    assert [layer.name for layer in captured] == [f"convs.{layer}.attn" for layer in range(3)]


def test_reset_and_train():
    model = attached().train()
    for conv in model.convs:
        conv.reset_parameters()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    first = None
    for _ in range(3):
        loss = call(model, batch_of_traps()).square().mean()
        first = first or loss.item()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < first
    assert isinstance(model, GPS)
    detach(model)
