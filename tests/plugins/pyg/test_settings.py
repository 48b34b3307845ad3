"""Settings, state, detach, and what attach refuses."""

import json

import pytest
import torch
from tests.plugins.pyg.gps import batch_of_traps, call, make
from tests.plugins.pyg.test_attach import attached, train
from torch import nn
from torch_geometric.nn import GPSConv
from torch_geometric.transforms import ToSparseTensor

import relbias as rb
from relbias.plugins.pyg import attach, detach, settings
from relbias.relations import EdgePaths, EdgeTypes, GraphRelation, Grid, Hops, RandomWalks, Sequence

GIVEN = [
    {"encoding": "table"},
    {"encoding": "table", "relation": Hops(5)},
    {"encoding": "grpe", "values": False},
    {"encoding": {"hops": "table", "walks": "feature_mlp"}},
    {"encoding": {"hops": "table", "walks": "feature_mlp"}, "relation": {"walks": RandomWalks(4)}},
    {
        "encoding": {"hops": "table", "edges": "graphormer_edges"},
        "relation": {"edges": EdgePaths(num_features=16, max_edges=4)},
    },
    {"encoding": {"near": "table", "far": "table"}, "relation": Hops(3)},
    {"encoding": {"near": "table", "far": "table"}, "relation": {"near": Hops(3), "far": Hops(30)}},
]


def of_modules(model):
    return {
        name: (type(module), set(vars(module)), len(module._forward_hooks), len(module._forward_pre_hooks))
        for name, module in model.named_modules()
    }


@pytest.mark.parametrize("given", GIVEN, ids=str)
def test_settings_and_weights_give_an_equal_model(given):
    data = batch_of_traps()
    model = make()
    attach(model, **given)
    train(model)
    written = settings(model)
    assert json.loads(json.dumps(written)) == written
    fresh = make()
    attach(fresh, **written)
    assert settings(fresh) == written
    fresh.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert torch.equal(call(fresh, data), call(model, data))


def test_settings_in_words():
    model = make()
    attach(
        model,
        {"hops": "table", "types": "table", "edges": "graphormer_edges"},
        relation={"types": EdgeTypes(4), "edges": EdgePaths((4, 2))},
    )
    assert settings(model) == {
        "encoding": {"hops": "table", "types": "table", "edges": "graphormer_edges"},
        "relation": {
            "hops": {"name": "Hops", "max_distance": 20, "prefix_tokens": 0, "one_prefix_code": False},
            "types": {"name": "EdgeTypes", "num_types": 4, "prefix_tokens": 0},
            "edges": {
                "name": "EdgePaths",
                "num_types": [4, 2],
                "max_edges": 5,
                "prefix_tokens": 0,
                "num_features": None,
            },
        },
    }


def test_state_keeps_the_hosts_names():
    host, model = make(), attached()
    own, names = host.state_dict(), model.state_dict()
    new = names.keys() - own.keys()
    assert new == {f"convs.{layer}.attn.encoding.table" for layer in range(3)}
    model.load_state_dict(own, strict=False)


def test_detach_leaves_the_host():
    data, host, model = batch_of_traps(), make(), attached()
    detach(model)
    assert of_modules(model) == of_modules(host)
    assert model.state_dict().keys() == host.state_dict().keys()
    with torch.no_grad():
        assert torch.equal(call(model, data), call(host, data))
    attach(model, "table")
    with pytest.raises(ValueError, match="call detach"):
        attach(model, "table")


def test_hooks_of_ones_own_stay():
    model, seen = make(), []
    model.register_forward_pre_hook(lambda *_: seen.append("before"))
    model.register_forward_hook(lambda *_: seen.append("after"))
    attach(model, "table")
    model.register_forward_hook(lambda *_: seen.append("late"), always_call=True)
    detach(model)
    call(model, batch_of_traps())
    assert seen == ["before", "after", "late"]
    assert len(model._forward_hooks_always_called) == 1


def test_one_encoding_for_all_layers():
    encoding = rb.create_encoding("table", 4, 4, Hops(9))
    model = make()
    attach(model, encoding)
    assert all(conv.attn.encoding is encoding for conv in model.convs)
    with pytest.raises(ValueError, match="by name"):
        settings(model)


def test_a_relation_of_ones_own():
    class Degrees(GraphRelation):
        num_codes = 4

        @property
        def index_type(self):
            return rb.relations.PairsIndex

        def of_graphs(self, graphs):
            into, _ = graphs.degrees
            return self(graphs.padded_nodes(into.clamp(max=3), 0)[:, None].expand(-1, graphs.longest, -1))

        def __call__(self, codes):
            return rb.relations.Pairs(4)(codes)

    model, data = make(), batch_of_traps()
    with torch.no_grad():
        before = call(model, data)
        attach(model, "table", relation=Degrees())
        train(model)
        assert not torch.allclose(call(model, data), before)
    with pytest.raises(ValueError, match=r"a relation is one of .*Hops.*got"):
        settings(model)


class Own(GPSConv):
    pass


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda: nn.Linear(2, 2), "Linear has no GPSConv inside"),
        (lambda: GPSConv(8, None, heads=2, attn_type="performer"), "attends by PerformerAttention.*multihead"),
        (lambda: Own(8, None, heads=2), "Own, a subclass of GPSConv"),
        (lambda: GPSConv(8, None, heads=2, attn_kwargs={"add_bias_kv": True}), "add_bias_kv"),
        (lambda: GPSConv(8, None, heads=2, attn_kwargs={"add_zero_attn": True}), "add_zero_attn"),
        (lambda: GPSConv(8, None, heads=2, attn_kwargs={"kdim": 4}), "a size of their own"),
    ],
)
def test_refused_models(model, message):
    model = model()
    before = of_modules(model)
    with pytest.raises(ValueError, match=message) as caught:
        attach(model, "table")
    assert "\n" not in str(caught.value)
    assert of_modules(model) == before


@pytest.mark.parametrize(
    ("encoding", "options", "message"),
    [
        ("table", {"relation": Hops(5, prefix_tokens=1)}, "prefix tokens, and GPSConv has none"),
        ("table", {"relation": Sequence()}, "cannot be made from graphs"),
        ("table", {"relation": Grid(2, 2)}, "cannot be made from graphs"),
        ("table", {"relation": "hops"}, "a relation is one of"),
        ("table", {"relation": {"hops": Hops(2)}}, "one encoding needs one relation"),
        ({"hops": "table", "tree": "table"}, {}, "relation of 'tree' is not known"),
        ({"hops": "table"}, {"relation": {"hop": Hops(2)}}, "keys must agree"),
        ("t5", {}, "takes the relation Sequence, got Hops"),
        ("tabel", {}, "table"),
        ("table", {"size": 3}, "no option 'size'"),
        ("feature_mlp", {}, "feature"),
        ("sinusoidal", {}, "takes the relation Sequence or Grid, got Hops"),
        (rb.create_encoding("table", 4, 4, Grid(2, 2)), {}, "cannot be made from graphs"),
        (rb.create_encoding("table", 4, 8, Hops(2)), {}, "built for 4 heads of 8"),
        (lambda heads, size, relation: rb.create_encoding("t5", heads, size), {}, "built over Sequence"),
    ],
)
def test_refused_encodings_change_nothing(encoding, options, message):
    model = make()
    before = of_modules(model)
    with pytest.raises(ValueError, match=message) as caught:
        attach(model, encoding, **options)
    assert "\n" not in str(caught.value)
    assert of_modules(model) == before


def test_refused_beside_the_plug_in_of_torch():
    model = make()
    attach(model, "table")
    for inner in (model, model.convs[0], model.convs[0].attn):
        with pytest.raises(ValueError, match=r"encoding attached|attached inside"):
            rb.plugins.torch.attach(inner, "shaw")
    with pytest.raises(ValueError, match="attached inside"):
        attach(model.convs, "table")
    detach(model)
    rb.plugins.torch.attach(model.convs[1], "shaw")
    with pytest.raises(ValueError, match="attached inside"):
        attach(model, "table")


def test_beside_an_encoder_with_an_encoding():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.gps = make()
            self.encoder = nn.TransformerEncoderLayer(16, 4, batch_first=True).eval()

        def forward(self, data):
            return self.encoder(call(self.gps, data)[None])

    torch.manual_seed(0)
    model, data = Both(), batch_of_traps()
    with torch.no_grad():
        expected = model(data)
        rb.plugins.torch.attach(model.encoder, "shaw")
        attach(model, "table")
        torch.testing.assert_close(model(data), expected, rtol=0, atol=1e-5)
        train(model)
        detach(model)
        assert isinstance(model.encoder.self_attn.encoding, rb.Encoding)
        rb.plugins.torch.detach(model.encoder)
        torch.testing.assert_close(model(data), expected)


@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_coo])
def test_refuses_sparse_edges(layout):
    model, data = attached(), batch_of_traps()
    adj = ToSparseTensor(attr=None, layout=layout)(data.clone()).adj_t
    with pytest.raises(ValueError, match=f"edge_index as a tensor .*got a tensor in {layout}"):
        model(data.x, adj, data.batch, data.edge_attr)


def test_on_the_meta_device():
    model = make()
    with torch.device("meta"):
        hollow = type(model)()
    attach(hollow, "table")
    attach(model, "table")
    train(model)
    hollow.to_empty(device="cpu")
    hollow.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert torch.equal(call(hollow.eval(), batch_of_traps()), call(model, batch_of_traps()))
