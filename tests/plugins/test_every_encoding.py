"""Every encoding in a model of each host: it starts by changing nothing, or is refused and nothing changes."""

import pytest
import timm
import torch
from tests.encodings.every import names
from tests.plugins.torch.test_refusals import same, snapshot
from torch import nn
from torchaudio.models.wav2vec2.components import _get_encoder

import relbias as rb
from relbias.encodings.base import find_encoding
from relbias.relations import Grid, Relation, Sequence

OPTIONS = {"learned": {"max_length": 9}, "table": {"relation": Sequence(max_distance=5)}}
"""What an encoding cannot be built over a sequence without."""
REFUSED = {
    "cope": "it makes q and k again, and nn.MultiheadAttention has no q_proj and k_proj",
}
"""Encodings that take the relation, give terms and yet cannot sit in a host."""


def takes(name, relation):
    """Whether an encoding is expected to be attached over a class of relations."""
    cls = find_encoding(name)
    taken = issubclass(relation, cls.relations) or Relation in cls.relations
    return taken and not hasattr(cls, "embed") and name not in REFUSED


@pytest.fixture
def vit():
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", img_size=64, depth=2, embed_dim=64, num_heads=2, num_classes=3)
    for block in model.blocks:
        nn.init.normal_(block.attn.qkv.weight, std=0.3)
    return model.eval(), torch.randn(2, 3, 64, 64)


@pytest.fixture
def encoder():
    """Without torch's fused inference, whose numbers differ by rounding."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 48, batch_first=True)
    torch.backends.mha.set_fastpath_enabled(False)
    yield nn.TransformerEncoder(layer, 2).eval(), torch.randn(2, 9, 32)
    torch.backends.mha.set_fastpath_enabled(True)


def move(model):
    """As training would."""
    generator = torch.Generator().manual_seed(1)
    for encoding in rb.plugins.engine.encodings(model):
        for parameter in encoding.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))


@torch.no_grad()
def check(plugin, model, x, name, expected, **options):
    before, state = model(x), snapshot(model)
    if not expected:
        with pytest.raises(ValueError, match=f"'{name}'") as caught:
            plugin.attach(model, name, **options)
        assert "\n" not in str(caught.value)
        assert same(snapshot(model), state)
        assert torch.equal(model(x), before)
        return
    plugin.attach(model, name, **options)
    assert (model(x) - before).abs().max() == 0.0
    move(model)
    if name != "none":
        assert (model(x) - before).abs().max() > 1e-3
    plugin.detach(model)
    assert same(snapshot(model), state)
    assert torch.equal(model(x), before)


@pytest.mark.parametrize("name", names())
def test_in_timm_over_a_grid(name, vit):
    check(rb.plugins.timm, *vit, name, takes(name, Grid) or name == "cpe")


@pytest.mark.parametrize("name", names())
def test_in_torch_over_a_sequence(name, encoder):
    check(rb.plugins.torch, *encoder, name, takes(name, Sequence), **OPTIONS.get(name, {}))


@pytest.mark.parametrize("name", names())
def test_in_torchaudio_over_frames(name):
    torch.manual_seed(0)
    model = _get_encoder(16, 32, 0.0, 4, 2, 2, 4, 0.0, 48, 0.0, 0.0, False, 0.0).eval()
    expected = takes(name, Sequence) or name == "cope"
    check(rb.plugins.torchaudio, model, torch.randn(2, 9, 16), name, expected, **OPTIONS.get(name, {}))


def test_a_gate_made_from_the_layers_input_learns_in_a_host(encoder):
    model, x = encoder
    rb.plugins.torch.attach(model, "wavlm")
    model(x).square().sum().backward()
    for layer in model.layers:
        assert layer.self_attn.encoding.table.grad.any()
    with torch.no_grad():
        move(model)
    out, attention = model(x), model.layers[0].self_attn
    nn.init.zeros_(attention.encoding.gate.weight)
    assert (model(x) - out).abs().max() > 1e-3


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_trial_has_the_hosts_dtype(encoder, dtype):
    model, x = encoder
    model, x = model.to(dtype), x.to(dtype)
    seen = []

    class Sees(rb.encodings.T5):
        def forward(self, index, *, x=None, attention=None):
            seen.append((x.dtype, self.table.dtype, tuple(x.shape), attention))
            return super().forward(index)

    rb.plugins.torch.attach(model, lambda *arguments: Sees(*arguments))
    assert seen == [(dtype, dtype, (2, 1, 32), layer.self_attn) for layer in model.layers]


def test_attaches_to_a_model_without_storage():
    with torch.device("meta"):
        model = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 48, batch_first=True), 1)
    for name in ("wavlm", "fire", "transformer_xl"):
        rb.plugins.torch.attach(model, name)
        assert all(parameter.is_meta for parameter in model.parameters())
        rb.plugins.torch.detach(model)
