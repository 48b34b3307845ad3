import pytest
import timm
import torch
from torch.nn import functional as F

import relbias as rb
from relbias.encodings import create_encoding
from relbias.models.pretrained import is_skipped, skip_pretrained
from relbias.models.timm import TimmModel
from relbias.relations import Grid
from relbias.tasks import ImageClassification

NAME = "test_vit"  # 2 heads of 32, patches of 16 x 16
OPTIONS = {"img_size": 64, "depth": 2}


def make(encoding="table", name=NAME, **options):
    torch.manual_seed(0)
    options = {"num_classes": 5, "options": OPTIONS, **options}
    return TimmModel(encoding, name, **options).eval()


def plain(**options):
    torch.manual_seed(0)
    return timm.create_model(NAME, num_classes=5, **{**OPTIONS, **options}).eval()


def images(size=64):
    return torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A file with trained weights, as timm keeps it, with a head of 1000 classes."""
    torch.manual_seed(5)
    model = timm.create_model(NAME, **OPTIONS)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    path = tmp_path_factory.mktemp("weights") / "test_vit.pth"
    torch.save(model.state_dict(), path)
    return path


def with_weights(path):
    return {**OPTIONS, "pretrained_cfg_overlay": {"file": str(path)}}


@pytest.mark.parametrize(
    "encoding", ["table", "irpe", "rope_axial", "rope_mixed", "swin_v2", {"a": "table", "b": "shaw"}]
)
def test_from_scratch_an_encoding_starts_as_it_does_on_its_own(encoding):
    model = make(encoding)
    for block in model.model.blocks:
        own = create_encoding(encoding, 2, 32, Grid(4, 4, prefix_tokens=1))
        own.drop_paper_scale()
        attached = block.attn.encoding
        assert attached.state_dict().keys() == own.state_dict().keys()  # no strength that stands at zero
        for mine, other in zip(attached.parameters(), own.parameters(), strict=True):
            if other.numel() > 90 and other.std() > 0:
                assert 0.7 < mine.std() / other.std() < 1.4
        assert next(attached.modules()).training is False
    first, second = (block.attn.encoding for block in model.model.blocks[:2])
    assert first is not second
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        assert one.std() == 0 or not torch.equal(one, other)
    assert not torch.equal(model(images()), plain()(images()))


@pytest.mark.parametrize("encoding", ["cpe", {"a": "table", "b": "cpe"}], ids=str)
def test_a_conditional_encoding_starts_from_scratch_at_the_tokens(encoding):
    model = make(encoding)
    [conditional] = [module for module in model.modules() if type(module).__name__ == "CPE"]
    assert conditional.weight.std() > 0
    tables = [module.table for module in model.modules() if type(module).__name__ == "Table"]
    assert len(tables) == (0 if encoding == "cpe" else 2)
    assert all(table.std() > 0 for table in tables)
    assert not torch.equal(model(images()), plain()(images()))


@pytest.mark.parametrize("encoding", ["table", "rope_axial", "swin_v2"])
def test_at_zero_the_network_is_timms(encoding):
    with torch.no_grad():
        assert torch.equal(make(encoding, zero_start=True)(images()), plain()(images()))


def test_trained_weights_are_loaded_and_the_encoding_starts_at_zero(weights):
    model = make(pretrained=True, num_classes=1000, options=with_weights(weights))
    trained = timm.create_model(NAME, **OPTIONS).eval()
    trained.load_state_dict(torch.load(weights, weights_only=True))
    with torch.no_grad():
        assert torch.equal(model(images()), trained(images()))
    fewer = make(pretrained=True, options=with_weights(weights))
    assert fewer(images()).shape == (2, 5)
    assert torch.equal(fewer.model.blocks[1].attn.qkv.weight, trained.blocks[1].attn.qkv.weight)


def test_weights_are_left_out_where_a_checkpoint_brings_them(tmp_path):
    missing = with_weights(tmp_path / "missing.pth")
    with skip_pretrained():
        skipped = make("rope_axial", pretrained=True, options=missing)
        with skip_pretrained():
            assert is_skipped()
        assert is_skipped()
    assert not is_skipped()
    assert "model.blocks.0.attn.encoding.strength" in skipped.state_dict()  # its start is still that of trained weights
    with pytest.raises(
        ValueError, match="the trained weights of test_vit cannot be loaded: FileNotFoundError; they are"
    ):
        make(pretrained=True, options=missing)


def test_a_built_encoding_is_shared_and_starts_as_it_was_built():
    built = create_encoding("table", 2, 32, Grid(4, 4, prefix_tokens=1))
    start = built.table.detach().clone()
    model = make(built)
    encodings = {block.attn.encoding for block in model.model.blocks}
    assert len(encodings) == 1
    assert torch.equal(encodings.pop().table, start)


def test_absolute_positions_stay_unless_they_are_dropped():
    kept, dropped = make("none"), make("none", drop_positions=True)
    assert torch.equal(kept(images()), plain()(images()))
    without = plain(pos_embed="none")
    without.load_state_dict({name: value for name, value in plain().state_dict().items() if name != "pos_embed"})
    assert torch.allclose(dropped(images()), without(images()), atol=1e-6)
    assert not torch.allclose(dropped(images()), kept(images()), atol=1e-3)
    scrambled = images().unflatten(2, (4, 16)).flip(2).flatten(2, 3)  # the patches in another order
    assert torch.allclose(dropped(scrambled), dropped(images()), atol=1e-5)


@pytest.mark.parametrize("name", [NAME, "deit_tiny_distilled_patch16_224"])
def test_a_frozen_model_trains_the_encoding_and_the_head_alone(name):
    model = make(name=name, freeze=True)
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert all(".encoding." in name or name.startswith("model.head") for name in trained)
    assert any(".encoding." in name for name in trained)
    assert "model.head.weight" in trained
    assert all(p.requires_grad for p in make(name=name).parameters())


@pytest.mark.parametrize("encoding", ["table", "rope_axial", {"far": "table", "turn": "rope_axial"}])
@pytest.mark.parametrize("size", [32, 96])
def test_another_size_is_timms_resize_and_the_tables(encoding, size):
    model = make(encoding, options={**OPTIONS, "dynamic_img_size": True})
    model.prepare_for_size(size)
    expected = plain(dynamic_img_size=True)
    rb.plugins.timm.attach(expected, encoding)
    for own, block in zip(make(encoding).model.blocks, expected.blocks, strict=True):
        block.attn.encoding = own.attn.encoding
    expected.set_input_size((size, size))
    if encoding != "rope_axial":
        rb.plugins.timm.resize(expected, (size // 16, size // 16), unit="image")
    assert torch.equal(model(images(size)), expected(images(size)))


def test_sizes_that_do_not_fit():
    model = make()
    with pytest.raises(ValueError, match="size must be a multiple of the patch size 16x16, got 40"):
        model.prepare_for_size(40)
    with pytest.raises(ValueError, match="unit"):
        model.prepare_for_size(32, "px")
    assert model(images()).shape == (2, 5)


def test_how_images_are_prepared_is_timms_but_for_the_size():
    config = make().data_config
    own = timm.data.resolve_model_data_config(plain())
    assert config == {**own, "input_size": (3, 64, 64)}
    assert own["input_size"] == (3, 160, 160)


def test_every_parameter_trains_and_timms_tokens_are_not_decayed():
    task = ImageClassification(lambda encoding: make(encoding), "table", num_classes=5)
    task.train()
    F.cross_entropy(task(images()), torch.tensor([0, 1])).backward()
    assert all(parameter.grad is not None for parameter in task.parameters())
    decayed, others = (set(map(id, group["params"])) for group in task.parameter_groups())
    model = task.network.model
    assert {id(model.pos_embed), id(model.cls_token), id(model.blocks[0].attn.encoding.table)} <= others
    assert id(model.blocks[0].attn.qkv.weight) in decayed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"name": "vit_tinyy_patch16_224"},
            "timm has no model 'vit_tinyy_patch16_224'; did you mean 'vit_tiny_patch16_224'",
        ),
        ({"options": {"img_sise": 64}}, r"timm cannot build test_vit with .*img_sise"),
        ({"name": "resnet18", "options": {}}, "resnet18 is not supported"),
        ({"encoding": "learned"}, "'learned' is applied at the input, not in attention"),
        ({"encoding": "tabel"}, "did you mean 'table'"),
        ({"num_classes": 0}, "num_classes"),
    ],
)
def test_refuses_what_does_not_fit(arguments, message):
    with pytest.raises(ValueError, match=message) as caught:
        make(**arguments)
    assert "\n" not in str(caught.value)
