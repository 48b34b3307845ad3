"""timm's optimizers: an encoding has the learning rate of its layer and no weight decay."""

import pytest
import torch
from timm.optim import create_optimizer_v2
from torch import nn

import relbias as rb
from relbias.plugins.timm import attach, detach


def groups_by_name(model, optimizer):
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {names[id(parameter)]: group for group in optimizer.param_groups for parameter in group["params"]}


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("encoding", [{"a": "cpe", "b": "table"}, "swin_v2", "irpe"], ids=str)
def test_layer_decay_and_no_weight_decay(make_vit, encoding, shared):
    model, plain = make_vit(depth=3), make_vit(depth=3)
    attach(model, encoding, shared=shared)
    arguments = {"opt": "adamw", "lr": 1.0, "weight_decay": 0.3, "layer_decay": 0.5}
    groups = groups_by_name(model, create_optimizer_v2(model, **arguments))
    assert groups.keys() == dict(model.named_parameters()).keys()
    new = {name for name in groups if ".encoding." in name}
    assert len(new) >= (1 if shared else 3)
    for name in new:
        layer, block = groups[name], groups[name.split(".encoding.")[0].removesuffix(".attn") + ".norm1.weight"]
        assert layer["weight_decay"] == 0.0
        assert layer["lr_scale"] == block["lr_scale"] < 1.0
    for name, group in groups_by_name(plain, create_optimizer_v2(plain, **arguments)).items():
        assert (group["weight_decay"], group["lr_scale"]) == (groups[name]["weight_decay"], groups[name]["lr_scale"])


def test_without_layer_decay(make_vit):
    model = make_vit()
    own = model.no_weight_decay()
    attach(model, "table")
    tables = {"blocks.0.attn.encoding.table", "blocks.1.attn.encoding.table"}
    assert model.no_weight_decay() == own | tables
    groups = groups_by_name(model, create_optimizer_v2(model, opt="sgd", weight_decay=0.3))
    decayed = {name for name, group in groups.items() if group["weight_decay"]}
    assert "blocks.0.attn.qkv.weight" in decayed
    assert not decayed & tables
    detach(model)
    assert model.no_weight_decay() == own


def test_blocks_of_the_groups(make_vit):
    model = make_vit()
    attach(model, {"a": "cpe", "b": "table"})
    from timm.models import group_parameters

    layers = group_parameters(model, model.group_matcher(coarse=False), reverse=True)
    assert layers["blocks.1.attn.encoding.encodings.b.table"] == layers["blocks.1.attn.qkv.weight"]
    assert layers["blocks.0.encoding.weight"] == layers["blocks.0.attn.qkv.weight"]


def test_training_the_encoding_alone(make_vit):
    """A step with weight decay moves what is zero by its gradient alone, and leaves what is frozen."""
    model = make_vit().requires_grad_(False)
    attach(model, "table")
    frozen = {name: p.clone() for name, p in model.named_parameters() if not p.requires_grad}
    optimizer = create_optimizer_v2(model, opt="momentum", lr=0.1, momentum=0.0, weight_decay=0.5)
    model(torch.randn(2, 3, 64, 64)).square().sum().backward()
    optimizer.step()
    for name, parameter in model.named_parameters():
        if name in frozen:
            assert parameter.grad is None
            assert torch.equal(parameter, frozen[name])
        else:
            assert parameter.abs().max() > 0
            torch.testing.assert_close(parameter, -0.1 * parameter.grad)


def test_distributed_training_finds_every_gradient(make_vit, tmp_path):
    """DistributedDataParallel raises in the second step where a parameter that trains is not used."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'init'}", rank=0, world_size=1)
    try:
        model = make_vit(global_pool="avg")  # of a class token alone the last layer trains one row of a table
        attach(model, {"a": "cpe", "b": "table"}, drop_positions=True)
        parallel = nn.parallel.DistributedDataParallel(model)
        for _ in range(2):
            parallel(torch.randn(1, 3, 64, 64)).square().sum().backward()
        assert all(p.grad is not None for p in model.parameters() if p.requires_grad)
        assert any(isinstance(module, rb.Encoding) for module in parallel.modules())
    finally:
        torch.distributed.destroy_process_group()
