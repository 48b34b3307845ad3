"""Small models of timm that attend in windows, partitions or whole maps, and biases added to them by hand."""

import pytest
import timm
import torch
from torch import nn

# Windows are not square; in a first stage there are several of them, in a last one the window may be smaller.
SWIN = {"img_size": (64, 96), "embed_dim": 32, "depths": (2, 2), "num_heads": (2, 4)}
MAXXVIT = {"img_size": (128, 192), "stem_width": (16, 32), "embed_dim": (32, 32, 32, 32), "depths": (1, 1, 1, 1)}
MODELS = {
    "swin": ("swin_tiny_patch4_window7_224", SWIN | {"window_size": (4, 6)}),
    "swin, padded": ("swin_tiny_patch4_window7_224", SWIN | {"window_size": (3, 5), "always_partition": True}),
    "swin, dynamic": ("swin_tiny_patch4_window7_224", SWIN | {"window_size": (4, 6), "strict_img_size": False}),
    "swin, head size": ("swin_s3_tiny_224", SWIN | {"window_size": ((4, 6), (2, 3)), "head_dim": 12}),
    "swin v2": ("swinv2_tiny_window8_256", SWIN | {"window_size": (4, 6)}),
    "swin v2, padded": ("swinv2_tiny_window8_256", SWIN | {"window_size": (3, 5), "always_partition": True}),
    "swin v2, no bias": ("swinv2_tiny_window8_256", SWIN | {"window_size": (6, 13), "qkv_bias": False}),
    "swin v2 cr": ("swinv2_cr_tiny_ns_224", SWIN | {"window_size": (4, 6)}),
    "swin v2 cr, dynamic": ("swinv2_cr_tiny_224", SWIN | {"window_size": (5, 6), "strict_img_size": False}),
    "maxvit": ("maxvit_pico_rw_256", MAXXVIT),
    "maxvit, tf": ("maxvit_tiny_tf_224", MAXXVIT),
    "maxvit, mlp": ("maxvit_rmlp_pico_rw_256", MAXXVIT),
    "maxvit, nchw": ("maxvit_pico_rw_256", MAXXVIT | {"transformer_use_nchw_attn": True}),
    "maxvit, parallel": ("maxvit_tiny_pm_256", MAXXVIT | {"embed_dim": (64, 64, 64, 64)}),
    "maxxvit": ("maxxvitv2_nano_rw_256", MAXXVIT),
    "coatnet": ("coatnet_nano_rw_224", MAXXVIT),
    "coatnet, tf": ("coatnet_0_224", MAXXVIT | {"transformer_rel_pos_type": "bias_tf"}),
    "coatnet, mlp": ("coatnet_rmlp_nano_rw_224", MAXXVIT),
}

RARE = (
    "swin, dynamic",
    "swin v2, no bias",
    "swin v2 cr, dynamic",
    "maxvit, mlp",
    "maxxvit",
    "coatnet, tf",
    "coatnet, mlp",
)
"""Those that differ from another in little, for the slow tests."""
EVERY = [pytest.param(model, marks=pytest.mark.slow) if model in RARE else model for model in MODELS]


def make(model, **arguments):
    """A small model in eval mode in which attention matters to the output."""
    name, own = MODELS[model]
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=5, **own | arguments).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if key.endswith("bias_table"):
                parameter.normal_()
            elif key.endswith(("norm1.weight", "norm2.weight", "gamma")):
                parameter.fill_(1.0)  # timm starts some scales of layers near 0
            elif parameter.ndim in (2, 4):
                parameter.normal_(std=parameter[0].numel() ** -0.5)
    return model


def size_of(model):
    return MODELS[model][1]["img_size"]


def images(size=(64, 96), batch=2):
    return torch.randn(batch, 3, *size, generator=torch.Generator().manual_seed(2))


def set_fused(model, fused):
    for module in model.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = fused


def attentions(model):
    """The attention modules of a plain model in order, each with the grid that it attends in."""
    found = []
    for name, module in model.named_modules():
        if hasattr(module, "window_size") and hasattr(module, "qkv"):
            found.append((module, module.window_size))
        elif type(module).__name__ in ("AttentionCl", "Attention2d"):
            partition = model.get_submodule(name.rpartition(".")[0])
            found.append((module, getattr(partition, "partition_size", module.rel_pos.window_size)))
    return found


def add_by_hand(model, bias_mask, encodings):
    """Give each attention of a plain model a bias made pair by pair, through what timm itself makes biases with.

    Args:
        model: without encodings.
        bias_mask: the fixture.
        encodings: tables over a Grid, one for each attention.
    """
    for (attention, grid), encoding in zip(attentions(model), encodings, strict=True):
        mask = bias_mask(encoding.table, (encoding.relation.height, encoding.relation.width), grid, 0)
        if hasattr(attention, "cpb_mlp"):
            attention.softmax.register_forward_pre_hook(lambda _, args, mask=mask: (args[0] + mask,))
            continue
        holder, name = next(
            (holder, name)
            for holder, name in (
                (attention, "_get_rel_pos_bias"),
                (attention, "_relative_positional_encodings"),
                (getattr(attention, "rel_pos", None), "get_bias"),
            )
            if isinstance(holder, nn.Module) and hasattr(holder, name)
        )
        own = getattr(holder, name)()
        setattr(holder, name, lambda own=own, mask=mask: own + mask)
