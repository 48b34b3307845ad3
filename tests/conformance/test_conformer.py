"""The Conformer against torchaudio's, and against the relative attention and layer of transformers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import relbias as rb
from relbias.models.conformer_block import ConformerBlock

SIZES = {"input_dim": 12, "num_heads": 2, "ffn_dim": 20, "num_layers": 2, "depthwise_conv_kernel_size": 5}
DIM, HEADS = SIZES["input_dim"], SIZES["num_heads"]


def scrambled(model: nn.Module) -> nn.Module:
    """In float64 with random parameters and statistics, so that each of them matters."""
    torch.manual_seed(0)
    model.double()
    for name, value in model.state_dict().items():
        if value.is_floating_point():
            value.uniform_(0.5, 1.5) if name.endswith("running_var") else value.normal_(std=0.5)
    return model


@pytest.fixture(params=["batch norm", "group norm", "batch norm, convolution first"])
def options(request):
    return {"use_group_norm": "group" in request.param, "convolution_first": "first" in request.param}


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_equals_torchaudio_with_its_weights(options, training):
    from torchaudio.models import Conformer

    theirs = scrambled(Conformer(**SIZES, **options)).train(training)
    ours = rb.models.Conformer("none", **SIZES, **options, dtype=torch.float64).train(training)
    ours.load_torchaudio(theirs.state_dict())
    x, lengths = torch.randn(3, 9, DIM, dtype=torch.float64), torch.tensor([9, 9, 9])
    mine, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    output, kept = ours(mine, lengths)
    expected, _ = theirs(other, lengths)
    assert torch.equal(kept, lengths)
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-9)
    cotangent = torch.randn_like(output)
    output.backward(cotangent)
    expected.backward(cotangent)
    torch.testing.assert_close(mine.grad, other.grad, rtol=0, atol=1e-9)
    # Gradients take the way that weights take, by which each is compared.
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    # A number for all keys changes no softmax, and one for all frames no batch norm of them.
    without = ("in_proj_bias", "sequential.2.bias") if training else ("in_proj_bias",)
    sizes = {name: float(value.abs().max()) for name, value in gradients.items() if not name.endswith(without)}
    assert min(sizes.values()) > 1e-3
    with torch.no_grad():
        for name, buffer in theirs.named_buffers():  # with batch norms the running statistics
            gradients[name] = buffer
    expected_gradients = rb.models.Conformer("none", **SIZES, **options, dtype=torch.float64)
    expected_gradients.load_torchaudio(gradients)
    for name, value in expected_gradients.state_dict().items():
        source = dict(ours.named_parameters()).get(name)
        given = ours.state_dict()[name] if source is None else source.grad
        torch.testing.assert_close(given, value, rtol=0, atol=1e-9, msg=lambda text, name=name: f"{name}: {text}")


def test_a_padded_batch_equals_torchaudios_items_alone(options):
    """A batch of torchaudio's own differs from its items: padding leaks through its convolutions."""
    from torchaudio.models import Conformer

    theirs = scrambled(Conformer(**SIZES, **options)).eval()
    ours = rb.models.Conformer("none", **SIZES, **options, dtype=torch.float64).eval()
    ours.load_torchaudio(theirs.state_dict())
    x, lengths = torch.randn(3, 9, DIM, dtype=torch.float64), torch.tensor([9, 6, 1])
    output, _ = ours(x, lengths)
    leaking, _ = theirs(x, lengths)
    for item, length in enumerate(lengths.tolist()):
        alone, _ = theirs(x[item : item + 1, :length], lengths[item : item + 1])
        torch.testing.assert_close(output[item, :length], alone[0], rtol=0, atol=1e-9)
        assert (output[item, length:] == 0).all()
        assert torch.allclose(leaking[item, :length], alone[0]) == (length == 9)


def test_refuses_weights_of_another_model():
    from torchaudio.models import Conformer

    ours = rb.models.Conformer("none", **SIZES)
    before = {name: value.clone() for name, value in ours.state_dict().items()}
    wide = Conformer(**{**SIZES, "ffn_dim": 24}).state_dict()
    deep = Conformer(**{**SIZES, "num_layers": 3}).state_dict()
    grouped = Conformer(**SIZES, use_group_norm=True).state_dict()
    for state, message in (
        (wide, r"ffn1.sequential.1.weight has the shape \(24, 12\)"),
        (deep, "no place for conformer_layers.2"),
        (grouped, "no conformer_layers.0.conv_module.sequential.3.running_mean"),
        (nn.Linear(2, 2).state_dict(), "not those of a torchaudio Conformer"),
    ):
        with pytest.raises(ValueError, match=message):
            ours.load_torchaudio(state)
    assert all(torch.equal(value, before[name]) for name, value in ours.state_dict().items())


def test_encodings_stay_when_weights_are_loaded():
    from torchaudio.models import Conformer

    for encoding in ("shaw", "learned"):
        ours = rb.models.Conformer(encoding, **SIZES, max_length=8)
        state = ours.state_dict()
        tables = {name: value.clone() for name, value in state.items() if "encoding" in name or "position" in name}
        assert tables
        ours.load_torchaudio(Conformer(**SIZES).state_dict())
        assert all(torch.equal(ours.state_dict()[name], value) for name, value in tables.items())


def their_config(**options):
    from transformers import Wav2Vec2ConformerConfig

    return Wav2Vec2ConformerConfig(
        hidden_act="silu",
        hidden_size=DIM,
        num_attention_heads=HEADS,
        intermediate_size=SIZES["ffn_dim"],
        conv_depthwise_kernel_size=SIZES["depthwise_conv_kernel_size"],
        position_embeddings_type="relative",
        attention_dropout=0.0,
        activation_dropout=0.0,
        hidden_dropout=0.0,
        conformer_conv_dropout=0.0,
        max_source_positions=20,
        attn_implementation="eager",
        **options,
    )


def attention_pairs(theirs, ours):
    """Our parameters, theirs, and what brings theirs into our layout, for one attention layer."""

    def same(x):
        return x

    def projection(x):  # their sines and cosines alternate, ours stand one after the other
        return torch.cat((x[:, 0::2], x[:, 1::2]), dim=1).unflatten(0, (HEADS, -1))

    pairs = [
        (getattr(our, part), getattr(their, part), same)
        for our, their in (
            (ours.q_proj, theirs.linear_q),
            (ours.k_proj, theirs.linear_k),
            (ours.v_proj, theirs.linear_v),
            (ours.out_proj, theirs.linear_out),
        )
        for part in ("weight", "bias")
    ]
    return [
        *pairs,
        (ours.encoding.projection, theirs.linear_pos.weight, projection),
        (ours.encoding.u, theirs.pos_bias_u, same),
        (ours.encoding.w, theirs.pos_bias_v, same),
    ]


def compare(ours, theirs, pairs, key_bias, assert_same):
    """`ours` and `theirs` make an output; the weights are copied, the output and each gradient compared."""
    with torch.no_grad():
        for our, their, layout in pairs:
            our.copy_(layout(their))
    # A number for all keys changes no softmax, so it has no gradient: the bias of the projection to keys.
    compared = [pair for pair in pairs if pair[0] is not key_bias]
    assert_same(
        (ours(), [our for our, _, _ in compared]),
        (theirs(), [their for _, their, _ in compared]),
        [layout for _, _, layout in compared],
    )


@pytest.fixture
def batch():
    """Frames of two clips, which of them are padding, and transformers' mask."""
    torch.manual_seed(1)
    x = torch.randn(2, 7, DIM, dtype=torch.float64, requires_grad=True)
    padding = torch.arange(7) >= torch.tensor([[7], [4]])
    mask = torch.zeros(2, 1, 1, 7, dtype=torch.float64).masked_fill(padding[:, None, None], -torch.inf)
    return x, padding, mask


@pytest.mark.parametrize("implementation", ["reference", "folded", "blockwise"])
def test_attention_equals_wav2vec2_conformers(batch, assert_same, implementation):
    from transformers.models.wav2vec2_conformer import modeling_wav2vec2_conformer as modeling

    config = their_config()
    theirs = scrambled(modeling.Wav2Vec2ConformerSelfAttention(config))
    positions = modeling.Wav2Vec2ConformerRelPositionalEmbedding(config).double()
    # Their table is made in float32; here it is needed as exactly as ours.
    positions.pe = exact_positions(20)
    ours = rb.RelativeAttention(DIM, HEADS, "transformer_xl", implementation=implementation).double()
    x, padding, mask = batch
    compare(
        lambda: ours(x, key_padding_mask=padding),
        lambda: theirs(x, mask, positions(x))[0],
        attention_pairs(theirs, ours),
        ours.k_proj.bias,
        assert_same,
    )


def exact_positions(length: int) -> torch.Tensor:
    """Transformers' table of sinusoids, (1, 2 length - 1, dim), from the distance length - 1 down to 1 - length."""
    distances = torch.arange(length - 1, -length, -1, dtype=torch.float64)
    angles = distances[:, None] * 10000.0 ** (-torch.arange(0, DIM, 2, dtype=torch.float64) / DIM)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)[None]


def test_the_exact_table_is_theirs():
    from transformers.models.wav2vec2_conformer import modeling_wav2vec2_conformer as modeling

    theirs = modeling.Wav2Vec2ConformerRelPositionalEmbedding(their_config()).pe
    torch.testing.assert_close(theirs.double(), exact_positions(20), rtol=0, atol=1e-5)


def test_layer_equals_wav2vec2_conformers(batch, assert_same):
    from transformers.models.wav2vec2_conformer import modeling_wav2vec2_conformer as modeling

    config = their_config()
    theirs = scrambled(modeling.Wav2Vec2ConformerEncoderLayer(config)).eval()
    positions = modeling.Wav2Vec2ConformerRelPositionalEmbedding(config).double()
    positions.pe = exact_positions(20)
    ours = ConformerBlock(
        DIM, HEADS, "transformer_xl", ffn_dim=SIZES["ffn_dim"], kernel_size=5, dtype=torch.float64
    ).eval()
    with torch.no_grad():
        for layer in (ours.convolution.expand, ours.convolution.depthwise, ours.convolution.project):
            layer.bias.zero_()  # theirs have none
        for name in ("running_mean", "running_var"):
            getattr(ours.convolution.norm, name).copy_(getattr(theirs.conv_module.batch_norm, name))
    modules = [
        (ours.mlp1[0], theirs.ffn1_layer_norm),
        (ours.mlp1[1], theirs.ffn1.intermediate_dense),
        (ours.mlp1[4], theirs.ffn1.output_dense),
        (ours.norm_attention, theirs.self_attn_layer_norm),
        (ours.convolution.norm_input, theirs.conv_module.layer_norm),
        (ours.convolution.norm, theirs.conv_module.batch_norm),
        (ours.mlp2[0], theirs.ffn2_layer_norm),
        (ours.mlp2[1], theirs.ffn2.intermediate_dense),
        (ours.mlp2[4], theirs.ffn2.output_dense),
        (ours.norm, theirs.final_layer_norm),
    ]
    pairs = [(getattr(o, part), getattr(t, part), lambda x: x) for o, t in modules for part in ("weight", "bias")]
    pairs.append((ours.convolution.depthwise.weight, theirs.conv_module.depthwise_conv.weight, lambda x: x))
    pairs.append((ours.convolution.expand.weight, theirs.conv_module.pointwise_conv1.weight, lambda x: x[..., 0]))
    pairs.append((ours.convolution.project.weight, theirs.conv_module.pointwise_conv2.weight, lambda x: x[..., 0]))
    pairs += attention_pairs(theirs.self_attn, ours.attention)
    x = batch[0]
    compare(lambda: ours(x)[0], lambda: theirs(x, None, positions(x)), pairs, ours.attention.k_proj.bias, assert_same)
