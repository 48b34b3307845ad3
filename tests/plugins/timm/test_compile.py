"""Attached models compile without a graph break and can be exported."""

import pytest
import torch

from relbias.plugins.timm import attach, attn_layer


@pytest.fixture
def images():
    return torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize(
    ("encoding", "drop_positions"),
    [("table", False), ("shaw", False), ("rope_axial", False), ({"a": "cpe", "b": "table"}, True)],
    ids=str,
)
def test_compile_and_export(make_vit, train, images, encoding, drop_positions):
    model = make_vit(depth=1)
    attach(model, encoding, drop_positions=drop_positions)
    train(model)
    wanted = model(images)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(images), wanted, rtol=0, atol=1e-6)
    exported = torch.export.export(model, (images,)).module()
    torch.testing.assert_close(exported(images), wanted, rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["table", "swin_v2", "irpe", "rope_axial", {"a": "cpe", "b": "table"}], ids=str)
def test_trains_in_torchs_own_compiler(make_vit, train, images, encoding):
    model = make_vit(depth=1)
    attach(model, encoding)
    train(model)
    torch._dynamo.reset()
    runs = []
    for call in (model, torch.compile(model, fullgraph=True)):
        model.zero_grad()
        out = call(images)
        out.square().sum().backward()
        runs.append((out, [parameter.grad.clone() for parameter in model.parameters()]))
    torch.testing.assert_close(runs[1][0], runs[0][0], rtol=1e-4, atol=1e-5)
    for found, wanted in zip(runs[1][1], runs[0][1], strict=True):
        assert (found - wanted).norm() <= 1e-3 * wanted.norm() + 1e-6


def test_compiled_model_follows_the_grid_under_checkpointing(make_vit, train):
    model = make_vit(depth=1, dynamic_img_size=True)
    attach(model, "table", grid=(6, 6), drop_positions=True)
    train(model)
    torch._dynamo.reset()
    wanted, found = [], []
    for grid in ((6, 4), (4, 6)):
        images = torch.randn(1, 3, 16 * grid[0], 16 * grid[1], generator=torch.Generator().manual_seed(3))
        model.set_grad_checkpointing(False)
        model.zero_grad()
        out = model(images)
        out.square().sum().backward()
        wanted.append((out, model.blocks[0].attn.encoding.table.grad.clone()))
        model.set_grad_checkpointing(True)
        model.zero_grad()
        out = torch.compile(model, fullgraph=True, backend="eager", dynamic=False)(images)
        out.square().sum().backward()
        found.append((out, model.blocks[0].attn.encoding.table.grad.clone()))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)


def test_attn_layer_compiles(make_vit, images):
    model = make_vit(depth=1, attn_layer=attn_layer("table", grid=(4, 4)))
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(images), model(images), rtol=0, atol=1e-6)
