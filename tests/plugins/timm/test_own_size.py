"""Architectures of timm with their own widths, heads and patches, two blocks deep."""

import pytest
import timm
import torch
from tests.plugins.timm.host_case import moved, randomised

from relbias.plugins.timm import attach, detach


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("beit_base_patch16_224", 224),
        ("beitv2_base_patch16_224", 224),
        ("beit_large_patch16_384", 384),
        ("eva02_tiny_patch14_336", 336),
        ("vit_base_patch16_rope_reg1_gap_256", 256),
        ("vit_base_patch16_sapiens2", 256),
        ("vit_pe_core_tiny_patch16_384", 384),
        ("vit_small_patch16_dinov3", 256),
        ("vit_small_patch16_rope_mixed_ape_224", 224),
        ("deepseek_vit_412m_align", 252),
        ("gemma4_vit_167m_enc", 240),
        ("gemma4_vit_570m", 256),
        ("qwen3_vit_416m", 256),
        ("qwen3_vit_88m_merge", 256),
        ("samvit_base_patch16_224", 224),
        ("samvit_large_patch16", 256),
        ("vit_relpos_base_patch16_clsgap_224", 224),
        ("vit_relpos_base_patch32_plus_rpn_256", 256),
        ("vit_srelpos_medium_patch16_224", 224),
    ],
)
def test_architectures(name, size):
    fewer_blocks = {"samvit": {"global_attn_indexes": (1,)}, "sapiens2": {"num_kv_heads": 6}}
    arguments = next((value for key, value in fewer_blocks.items() if key in name), {})
    model = randomised(timm.create_model(name, depth=2, img_size=size, **arguments))
    images = torch.rand(1, 3, size, size, generator=torch.Generator().manual_seed(2))
    side = size // (32 if "patch32" in name else 14 if "patch14" in name or "deepseek" in name else 16)
    with torch.no_grad():
        before = model(images)
        for encoding in ("table", "shaw", "rope_axial"):
            attach(model, encoding, grid=(side, side))
            assert (model(images) - before).abs().max() == 0.0
            assert (moved(model)(images) - before).abs().max() > 1e-3
            detach(model)
