"""Capturing in torch's encoder with encodings attached."""

import pytest
import torch
from torch import nn

import relbias as rb


@pytest.mark.parametrize("train", [False, True])
def test_layers_of_an_encoder(train):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).train(train)
    rb.plugins.torch.attach(model, "t5")
    x, padding = torch.randn(2, 5, 16), torch.zeros(2, 5, dtype=torch.bool)
    padding[1, 3:] = True
    with torch.set_grad_enabled(train):
        torch.manual_seed(1)
        wanted = model(x, src_key_padding_mask=padding)
        torch.manual_seed(1)
        with rb.capture(model) as captured:
            found = model(x, src_key_padding_mask=padding)
    assert torch.equal(found, wanted)
    assert [record.name for record in captured] == ["layers.0.self_attn", "layers.1.self_attn"]
    q, k, _ = layer_projections(model.layers[0].self_attn, x)
    logits = (q @ k.mT / 8**0.5).masked_fill(padding[:, None, None], -torch.inf)  # the bias begins at 0
    torch.testing.assert_close(captured[0].weights, logits.softmax(-1), rtol=1e-4, atol=1e-6)


def layer_projections(attention, x):
    projected = nn.functional.linear(x, attention.in_proj_weight, attention.in_proj_bias).detach()
    return projected.view(2, 5, 3, 2, 8).permute(2, 0, 3, 1, 4)
