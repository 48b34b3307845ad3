"""What cannot be attached is refused in one line and leaves the model as it was; so are calls that do not fit."""

import pytest
import torch
from tests.plugins.torch.hosts import make, tokens
from torch import nn

import relbias as rb
from relbias.plugins.torch import attach, detach, settings


def snapshot(model):
    return (
        [type(module) for module in model.modules()],
        {key: value.clone() for key, value in model.state_dict().items()},
        [set(vars(module)) for module in model.modules()],
    )


def same(a, b):
    return (
        a[0] == b[0]
        and a[2] == b[2]
        and a[1].keys() == b[1].keys()
        and all(torch.equal(a[1][k], b[1][k]) for k in a[1])
    )


def built(name="t5", heads=4, relation=None, **options):
    encoding = rb.create_encoding(name, heads, 8, relation, **options)
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.fill_(1.0)
    return encoding


class FailsInLaterLayers:
    def __init__(self):
        self.layers = 0

    def __call__(self, num_heads, head_dim, relation):
        self.layers += 1
        if self.layers > 1:
            raise ValueError("no more")
        return rb.encodings.T5(num_heads, head_dim, relation)


GRID = rb.relations.Grid(3, 3)


class NeverCalled(rb.encodings.T5):
    def forward(self, index, *, x=None, attention=None):
        raise ValueError("not here")


@pytest.mark.parametrize(
    ("encoding", "options", "message"),
    [
        ("table", {}, "'table' needs a relation with a limited number of codes"),
        ("rope_axial", {}, "'rope_axial' takes the relation Grid or Volume, got Sequence"),
        ("t5", {"relation": GRID}, "'t5' takes the relation Sequence, got Grid"),
        ("sinusoidal", {}, "'sinusoidal' is applied at the input"),
        ("learned", {"max_length": 9}, "'learned' is applied at the input"),
        ("alibi", {"variant": "causal"}, "cannot start as zero"),
        ("t6", {}, "there is no encoding 't6'"),
        ("shaw", {"max_distanze": 3}, "did you mean 'max_distance'"),
        ({"a": "t5", "b": "rope_axial"}, {}, "'rope_axial' takes the relation Grid"),
        (FailsInLaterLayers(), {}, "no more"),
        ("table", {"relation": rb.relations.Hops(4)}, r"Hops\(.*\) needs an index with every call"),
        ("table", {"relation": rb.relations.Pairs(4)}, r"Pairs\(num_codes=4\) needs an index with every call"),
        (built("table", relation=rb.relations.Hops(4)), {}, r"Hops\(.*\) needs an index with every call"),
        (built(heads=2), {}, "built for 2 heads"),
        (NeverCalled(4, 8), {}, "not here"),  # found once it is at zero
        (built(), {"max_distance": 2}, "already built"),
        (built(), {"relation": GRID}, "built over Sequence.*this model needs one like Grid"),
        ("table", {"relation": "Sequence"}, "a relation is one of Sequence, Grid, Pairs, Hops, .* or a mapping"),
        ("table", {"relation": {"name": "Sequenze"}}, "a relation's name is one of Sequence.*got 'Sequenze'"),
        ("table", {"relation": {"name": "Sequence", "max_distanze": 3}}, "did you mean 'max_distance'"),
        ("table", {"relation": {"name": "Grid", "height": 3}}, "lacks arguments; Grid also takes width"),
        ("table", {"relation": {"name": "Sequence", "max_distance": -1}}, "max_distance must be an integer"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_refused_encodings_change_nothing(encoding, options, message):
    model, _ = make("encoder")
    before = snapshot(model)
    weights = [p.clone() for p in encoding.parameters()] if isinstance(encoding, nn.Module) else []
    with pytest.raises(ValueError, match=message) as caught:
        attach(model, encoding, **options)
    assert "\n" not in str(caught.value)
    assert same(snapshot(model), before)
    for kept, parameter in zip(weights, encoding.parameters() if weights else [], strict=True):
        assert torch.equal(kept, parameter)
    attach(model, "t5")


class OwnAttention(nn.MultiheadAttention):
    pass


class OwnEncoder(nn.TransformerEncoder):
    pass


def own_encoder(**arguments):
    return OwnEncoder(nn.TransformerEncoderLayer(32, 4, 48, batch_first=True), 1, **arguments)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Linear(2, 2), "Linear has no nn.MultiheadAttention inside"),
        (nn.Sequential(OwnAttention(8, 2)), "Sequential attends by OwnAttention, a subclass"),
        (nn.MultiheadAttention(8, 2, kdim=6), "cross-attention only"),
        (nn.MultiheadAttention(8, 2, vdim=6), "cross-attention only"),
        (nn.MultiheadAttention(8, 2, add_bias_kv=True), "add_bias_kv=True, which adds a key that is no token"),
        (nn.MultiheadAttention(8, 2, add_zero_attn=True), "add_zero_attn=True, which adds a key that is no token"),
        (own_encoder(), "OwnEncoder, a subclass .* enable_nested_tensor=False"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else "",
)
def test_refused_models_stay_as_they_were(model, message):
    before = snapshot(model)
    with pytest.raises(ValueError, match=message):
        attach(model, "t5")
    assert same(snapshot(model), before)


def test_timms_models_have_a_plugin_of_their_own():
    import timm

    model = timm.create_model("vit_tiny_patch16_224", pretrained=False, depth=1)
    with pytest.raises(
        ValueError, match=r"VisionTransformer has no nn.MultiheadAttention inside; use relbias\.plugins\.timm"
    ):
        attach(model, "t5")


def test_what_is_beside_a_site_stays():
    cross, own = nn.MultiheadAttention(32, 4, kdim=6), OwnAttention(32, 4)
    model = nn.ModuleList([nn.MultiheadAttention(32, 4), cross, own, own_encoder(enable_nested_tensor=False)])
    attach(model, "t5")
    assert type(cross) is nn.MultiheadAttention
    assert type(own) is OwnAttention
    assert type(model[3]) is OwnEncoder
    assert [name for name in model.state_dict() if "encoding" in name] == [
        "0.encoding.table",
        "3.layers.0.self_attn.encoding.table",
    ]


def test_attach_twice_and_detach_without_attach():
    model, _ = make("encoder")
    for call in (detach, settings):
        with pytest.raises(ValueError, match="TransformerEncoder has no encoding attached; call attach"):
            call(model)
    attach(model, "t5")
    before = snapshot(model)
    with pytest.raises(ValueError, match="TransformerEncoder has an encoding attached; call detach"):
        attach(model, "shaw")
    for other in (model.layers[0], nn.Sequential(model)):
        with pytest.raises(ValueError, match="has an encoding attached inside; call detach on the module that"):
            attach(other, "shaw")
    assert same(snapshot(model), before)
    detach(model)
    with pytest.raises(ValueError, match="no encoding attached"):
        detach(model)


N, E = 5, 8
X = torch.zeros(2, N, E)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"key": X.clone()}, "cross-attention has no default relation"),
        ({"key": torch.zeros(2, 3, E), "value": torch.zeros(2, 3, E)}, "cross-attention has no default relation"),
        ({"value": torch.zeros(2, 3, E)}, r"got query \(2, 5, 8\) and value \(2, 3, 8\)"),
        ({"query": X[..., :6], "key": X[..., :6], "value": X[..., :6]}, r"\(\[batch,\] tokens, 8\)"),
        ({"query": X[None], "key": X[None], "value": X[None]}, r"\(\[batch,\] tokens, 8\)"),
        ({"is_causal": True}, "is_causal is a hint about attn_mask"),
        ({"attn_mask": torch.zeros(1, 1)}, r"attn_mask has shape \(5, 5\) or \(4, 5, 5\), got \(1, 1\)"),
        ({"attn_mask": torch.zeros(2, N, N)}, r"attn_mask has shape \(5, 5\) or \(4, 5, 5\), got \(2, 5, 5\)"),
        ({"attn_mask": torch.zeros(N, N).int()}, "attn_mask is boolean .True = blocked. or floating, got torch.int32"),
        ({"key_padding_mask": torch.zeros(2, N).int()}, "key_padding_mask is boolean"),
        ({"key_padding_mask": torch.zeros(N, 2).bool()}, r"key_padding_mask has shape \(2, 5\).*got \(5, 2\)"),
        ({"key_padding_mask": torch.zeros(N).bool()}, r"key_padding_mask has shape \(2, 5\).*got \(1, 5\)"),
    ],
)
def test_calls_that_do_not_fit(arguments, message):
    attention = nn.MultiheadAttention(E, 2, batch_first=True)
    attach(attention, "t5")
    x = arguments.pop("query", X)
    with pytest.raises(ValueError, match=message) as caught:
        attention(x, arguments.pop("key", x), arguments.pop("value", x), **arguments)
    assert "\n" not in str(caught.value)


def test_grid_that_does_not_fit():
    model, call = make("encoder")
    attach(model, "table", relation=rb.relations.Grid(2, 2))
    with pytest.raises(ValueError, match=r"Grid\(.*\) has 4 tokens and the call has 9"):
        call(model)


def test_nested_tensors():
    """A part that is attached alone cannot keep the encoder around it from nesting its input."""
    model, call = make("encoder, padded")
    attach(model.layers, "t5")
    with torch.no_grad(), pytest.raises(ValueError, match="takes no nested tensors; attach to the whole model"):
        call(model)
    detach(model.layers)
    attach(model, "t5")
    with torch.no_grad():
        call(model)


def test_flags_of_the_host_are_kept():
    model, _ = make("encoder")
    attach(model, "t5")
    assert model.use_nested_tensor is False
    detach(model)
    assert model.use_nested_tensor is True
    attach(model, "t5")
    model.use_nested_tensor = False
    detach(model)
    assert model.use_nested_tensor is False
    assert model.layers[0].self_attn._qkv_same_embed_dim is True


def test_memory_of_a_users_decoder_is_refused():
    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.own, self.cross = nn.MultiheadAttention(32, 4), nn.MultiheadAttention(32, 4)

        def forward(self, x, memory):
            x = self.own(x, x, x)[0]
            return self.cross(x, memory, memory)[0]

    model = Decoder()
    attach(model, "t5")
    with pytest.raises(ValueError, match="attach to the part of the model that attends to itself"):
        model(tokens(32), tokens(32, seed=2))
    detach(model)
    attach(model.own, "t5")
    model(tokens(32), tokens(32, seed=2))
