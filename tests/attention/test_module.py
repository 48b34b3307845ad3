"""RelativeAttention: indices, several relations, sharing, scale, precision and state."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import relbias as rb
from relbias.relations import Grid, Hops, Sequence

DIM, HEADS = 32, 4
RELATIONS = {
    "none": Sequence(),
    "t5": Sequence(),
    "alibi": Sequence(),
    "shaw": Sequence(),
    "rope": Sequence(),
    "table": Grid(3, 3, prefix_tokens=1),
    "rope_axial": Grid(3, 3, prefix_tokens=1),
}
HOPS = Hops(3)
DISTANCES = torch.tensor([[0, 1, 2, -1], [1, 0, 1, 9], [2, 1, 0, -1], [-1, 9, -1, 0]])


def layer(encoding="none", relation=None, **options):
    torch.manual_seed(0)
    return rb.RelativeAttention(DIM, HEADS, encoding, relation, **options)


def with_projections(attention, x, terms, context=None, **arguments):
    """The layer, written down with relative_attention."""
    source = x if context is None else context

    def heads(linear, y):
        return linear(y).unflatten(-1, (-1, attention.head_dim)).transpose(1, 2)

    out = rb.relative_attention(
        heads(attention.q_proj, x), heads(attention.k_proj, source), heads(attention.v_proj, source), terms, **arguments
    )
    return attention.out_proj(out.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("name", RELATIONS)
def test_the_index_is_the_relations_own_by_default(name):
    relation = RELATIONS[name]
    attention = layer(name, relation)
    n = relation().shape[0] if isinstance(relation, Grid) else 10
    index = relation() if isinstance(relation, Grid) else relation(n)
    x = torch.randn(2, n, DIM)
    out = attention(x)
    assert out.shape == x.shape
    torch.testing.assert_close(out, with_projections(attention, x, attention.encoding(index)))
    torch.testing.assert_close(out, attention(x, index=index))


@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
def test_grouped_heads(num_kv_heads):
    attention = layer("shaw", num_kv_heads=num_kv_heads)
    assert attention.k_proj.out_features == num_kv_heads * 8
    x = torch.randn(2, 5, DIM)
    full = layer("shaw")  # the same with k and v of each group repeated
    full.load_state_dict(attention.state_dict() | {k: v for k, v in full.state_dict().items() if k[:2] in ("k_", "v_")})
    for name in ("k_proj", "v_proj"):
        for part in ("weight", "bias"):
            grouped = getattr(getattr(attention, name), part).detach()
            repeated = grouped.unflatten(0, (num_kv_heads, 8)).repeat_interleave(HEADS // num_kv_heads, dim=0)
            getattr(getattr(full, name), part).data.copy_(repeated.flatten(0, 1))
    torch.testing.assert_close(attention(x, is_causal=True), full(x, is_causal=True))


def test_arguments_reach_attention():
    attention, x = layer("t5"), torch.randn(2, 5, DIM)
    arguments = {
        "attn_mask": torch.rand(5, 5) > 0.2,
        "key_padding_mask": torch.rand(2, 5) > 0.7,
        "is_causal": True,
        "window": (2, 0),
        "document_ids": torch.tensor([[0, 0, 1, 1, 1]] * 2),
    }
    expected = with_projections(attention, x, attention.encoding(Sequence()(5)), **arguments)
    torch.testing.assert_close(attention(x, **arguments), expected)


def test_a_graph_whose_index_comes_with_the_batch():
    attention, x = layer("table", HOPS), torch.randn(2, 4, DIM)
    index = HOPS(DISTANCES)
    padding = torch.tensor([[False, False, False, True]] * 2)
    expected = with_projections(attention, x, attention.encoding(index), key_padding_mask=padding)
    torch.testing.assert_close(attention(x, index=index, key_padding_mask=padding), expected)
    with pytest.raises(
        ValueError, match=r"Hops\(max_distance=3, prefix_tokens=0, one_prefix_code=False\) needs an index"
    ):
        attention(x)


def test_cross_attention_needs_an_index_unless_there_are_no_terms():
    attention, x, memory = layer("t5"), torch.randn(2, 4, DIM), torch.randn(2, 7, DIM)
    with pytest.raises(ValueError, match="attention to a context needs an explicit index"):
        attention(x, context=memory)
    index = Sequence()(4, 7, torch.arange(4), torch.arange(7))
    expected = with_projections(attention, x, attention.encoding(index), memory)
    torch.testing.assert_close(attention(x, context=memory, index=index), expected)
    plain = layer("none")
    torch.testing.assert_close(plain(x, context=memory), with_projections(plain, x, None, memory))


def test_several_relations():
    attention = layer({"offset": "t5", "tree": "table"}, {"tree": HOPS})
    assert {name for name, _ in attention.encoding.named_parameters()} == {
        "encodings.offset.table",
        "encodings.tree.table",
    }
    x, index = torch.randn(2, 4, DIM), HOPS(DISTANCES)
    offset, tree = attention.encoding.encodings["offset"], attention.encoding.encodings["tree"]
    expected = with_projections(attention, x, offset(Sequence()(4)) + tree(index))
    torch.testing.assert_close(attention(x, index={"tree": index}), expected)
    torch.testing.assert_close(attention(x, index={"tree": index, "offset": Sequence()(4)}), expected)
    shifted = {"offset": Sequence()(4, positions=torch.arange(4) * 3), "tree": index}
    assert not torch.allclose(attention(x, index=shifted), expected)
    by_positions = attention(x, index={"tree": index}, positions=torch.arange(4) * 3)
    torch.testing.assert_close(by_positions, attention(x, index=shifted))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, r"needs an index that comes with the batch; pass index=relation\(distances\),"),
        ({"index": {"offset": Sequence()(4)}}, r"Hops.* needs an index .*, of several relations in a mapping"),
        ({"index": HOPS(DISTANCES)}, r"a mapping of indices with keys from \['offset', 'tree'\]"),
        ({"index": {"trees": HOPS(DISTANCES)}}, r"no relation 'trees'; the relations are \['offset', 'tree'\]"),
    ],
)
def test_several_relations_refuse(arguments, message):
    attention = layer({"offset": "t5", "tree": "table"}, {"tree": HOPS})
    with pytest.raises(ValueError, match=message):
        attention(torch.randn(2, 4, DIM), **arguments)


def test_a_built_encoding_is_shared_and_a_name_is_not():
    encoding = rb.create_encoding("t5", HEADS, DIM // HEADS)
    layers = nn.ModuleList([rb.RelativeAttention(DIM, HEADS, encoding) for _ in range(2)])
    assert layers[0].encoding is layers[1].encoding is encoding
    assert sum("table" in name for name, _ in layers.named_parameters()) == 1
    x = torch.randn(2, 5, DIM)
    layers[1](layers[0](x)).sum().backward()
    assert encoding.table.grad.abs().sum() > 0
    assert layer("t5").encoding.table is not layer("t5").encoding.table


def test_a_callable_is_given_heads_head_size_and_relation():
    seen = []

    def make(num_heads, head_dim, relation):
        seen.append((num_heads, head_dim, relation))
        return rb.encodings.Shaw(num_heads, head_dim, relation, max_distance=3)

    attention = layer(make, Sequence(9))
    assert seen == [(HEADS, DIM // HEADS, Sequence(9))]
    assert attention.encoding.keys.shape == (1, 7, DIM // HEADS)


@pytest.mark.parametrize(("name", "scale", "c"), [("t5", "paper", 1.0), ("shaw", "paper", None), ("t5", None, None)])
def test_scale(name, scale, c):
    attention, x = layer(name, scale=scale), torch.randn(2, 5, DIM)
    expected = with_projections(attention, x, attention.encoding(Sequence()(5)), scale=c)
    torch.testing.assert_close(attention(x), expected)
    number = layer(name, scale=0.25)
    expected = with_projections(number, x, number.encoding(Sequence()(5)), scale=0.25)
    torch.testing.assert_close(number(x), expected)


class LearnedScale(rb.Encoding):
    relations = (Sequence,)
    paper_normalize = True

    def __init__(self, num_heads, head_dim, relation=None, **options):
        super().__init__(num_heads, head_dim, relation, **options)
        self.log_scale = nn.Parameter(torch.arange(float(num_heads)))

    @property
    def paper_scale(self):
        return self.log_scale.exp()

    def forward(self, index, *, x=None, attention=None):
        return rb.Terms()


def test_a_learned_scale_and_normalised_queries_and_keys():
    attention, x = layer(LearnedScale, scale="paper"), torch.randn(2, 5, DIM)
    for _ in range(2):  # the scale is read at every call
        scale = attention.encoding.log_scale.exp()
        torch.testing.assert_close(
            attention(x), with_projections(attention, x, rb.Terms(), scale=scale, normalize=True)
        )
        nn.init.constant_(attention.encoding.log_scale, 1.5)
    attention(x).sum().backward()
    assert attention.encoding.log_scale.grad.any()
    own = layer(LearnedScale)
    torch.testing.assert_close(own(x), with_projections(own, x, rb.Terms()))  # only where it is asked for


def test_papers_that_differ_in_scale():
    for other in ("shaw", LearnedScale):
        with pytest.raises(ValueError, match="differ in scale"):
            layer({"a": "t5", "b": other}, scale="paper")


def test_dropout_only_in_training():
    attention, x = layer("t5", dropout=0.5), torch.randn(2, 8, DIM)
    attention.eval()
    assert torch.equal(attention(x), attention(x))
    torch.testing.assert_close(attention(x), with_projections(attention, x, attention.encoding(Sequence()(8))))
    attention.train()
    assert not torch.allclose(attention(x), attention(x))


@pytest.mark.parametrize("name", RELATIONS)
def test_state_dict_round_trip(name):
    attention, x = layer(name, RELATIONS[name]), torch.randn(2, 10, DIM)
    other = rb.RelativeAttention(DIM, HEADS, name, RELATIONS[name])
    other.load_state_dict(copy.deepcopy(attention.state_dict()))
    assert torch.equal(attention(x), other(x))
    parameters = {key for key, _ in attention.named_parameters()}
    assert set(attention.state_dict()) == parameters  # what can be recomputed is not saved
    assert torch.equal(copy.deepcopy(attention)(x), attention(x))


@pytest.mark.parametrize("name", RELATIONS)
def test_meta_device_then_to_empty(name):
    attention = rb.RelativeAttention(DIM, HEADS, name, RELATIONS[name], device="meta", dtype=torch.float64)
    assert {p.device.type for p in attention.parameters()} == {"meta"}
    assert {p.dtype for p in attention.parameters()} == {torch.float64}
    attention = attention.to_empty(device="cpu")
    for parameter in attention.parameters():
        nn.init.constant_(parameter, float("nan"))
    torch.manual_seed(5)
    attention.reset_parameters()
    x = torch.randn(2, 10, DIM, dtype=torch.float64)
    out = attention(x)
    assert out.isfinite().all()
    for key, table in attention.encoding.named_parameters():
        assert 0.005 < float(table.detach().std()) < 0.06, key  # drawn with a standard deviation of 0.02
    again = rb.RelativeAttention(DIM, HEADS, name, RELATIONS[name], dtype=torch.float64)
    again.load_state_dict(attention.state_dict())
    assert torch.equal(again(x), out)


@pytest.mark.parametrize("name", RELATIONS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_dtypes(name, dtype):
    """Converted as a whole, the layer computes what the layer built in that dtype does, near the float32 layer."""
    attention, x = layer(name, RELATIONS[name]), torch.randn(2, 10, DIM)
    expected = attention(x)
    converted = copy.deepcopy(attention).to(dtype)
    out = converted(x.to(dtype))
    assert out.dtype == dtype
    assert (out - expected).abs().max() < (1e-5 if dtype == torch.float64 else 0.02)
    built = rb.RelativeAttention(DIM, HEADS, name, RELATIONS[name], dtype=dtype)
    assert {p.dtype for p in built.parameters()} == {dtype}
    built.load_state_dict(converted.state_dict())
    assert torch.equal(built(x.to(dtype)), out)
    out.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in converted.parameters())


@pytest.mark.parametrize("name", RELATIONS)
def test_autocast(name):
    attention, x = layer(name, RELATIONS[name]), torch.randn(2, 10, DIM)
    expected = attention(x)
    with torch.autocast("cpu", torch.bfloat16):
        out = attention(x)
    assert out.dtype == torch.bfloat16
    assert (out - expected).abs().max() < 0.02


@pytest.mark.parametrize("name", ["rope", "rope_axial"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_models_turn_by_the_same_angles(name, dtype):
    relation = RELATIONS[name]
    index = relation() if isinstance(relation, Grid) else relation(5000)
    encoding = rb.create_encoding(name, HEADS, 8, relation)
    angles = encoding(index).rotation.q_angles
    assert torch.equal(encoding.to(dtype)(index).rotation.q_angles, angles)
    assert torch.equal(rb.create_encoding(name, HEADS, 8, relation, dtype=dtype)(index).rotation.q_angles, angles)


@pytest.mark.parametrize("implementation", ["reference", "folded", "blockwise"])
@pytest.mark.parametrize("name", RELATIONS)
def test_every_implementation_and_every_encoding(name, implementation):
    x = torch.randn(2, 10, DIM)
    expected = layer(name, RELATIONS[name], implementation="reference")(x)
    torch.testing.assert_close(layer(name, RELATIONS[name], implementation=implementation)(x), expected)


@pytest.mark.parametrize("implementation", ["auto", "reference", "folded", "blockwise"])
@pytest.mark.parametrize("name", ["t5", "rope", "deberta", "wavlm"])
def test_an_ensemble_by_vmap_is_its_members(name, implementation):
    """Parameters of several layers in one call of torch.func, with their gradients."""
    members = [rb.RelativeAttention(DIM, HEADS, name, implementation=implementation) for _ in range(2)]
    x = torch.randn(2, 7, DIM)
    parameters, buffers = torch.func.stack_module_state(members)

    def call(parameters, buffers):
        return torch.func.functional_call(members[0], (parameters, buffers), (x,), {"is_causal": True})

    outs = torch.func.vmap(call)(parameters, buffers)
    expected = torch.stack([member(x, is_causal=True) for member in members])
    torch.testing.assert_close(outs, expected, rtol=0, atol=1e-6)
    outs.square().sum().backward()
    expected.square().sum().backward()
    for key, stacked in parameters.items():
        wanted = torch.stack([member.get_parameter(key).grad for member in members])
        torch.testing.assert_close(stacked.grad, wanted, rtol=1e-4, atol=1e-5)
