import pytest
import torch
from torch.nn import functional as F

from relbias.encodings import Table, create_encoding
from relbias.models import TransformerBlock
from relbias.models.vision import VisionTransformer
from relbias.relations import Grid

SIZES = {"image_size": 8, "patch_size": 2, "in_channels": 3, "num_classes": 5, "dim": 32, "depth": 2, "num_heads": 2}


def make(encoding, **options):
    torch.manual_seed(0)
    return VisionTransformer(encoding, **{**SIZES, **options}).double().eval()


@pytest.mark.parametrize(
    "encoding",
    [
        *["none", "table", "shaw", "shaw_axial", "irpe", "swin_v2", "rope_axial", "learned", "sinusoidal", "cpe"],
        {"far": "table", "turn": "rope_axial"},
    ],
    ids=str,
)
def test_every_encoding_of_a_grid_trains(encoding):
    model = make(encoding)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    loss = F.cross_entropy(model(torch.randn(3, 3, 8, 8, dtype=torch.float64)), torch.tensor([0, 1, 2]))
    loss.backward()
    # A bias of the keys shifts all logits of a query alike: without a rotation it has no gradient.
    names = [n for n, p in model.named_parameters() if p.grad is None or p.grad.abs().max() < 1e-12]
    assert all(name.endswith("k_proj.bias") for name in names)


def test_equals_the_model_written_down():
    model = make("table")
    for block in model.blocks:
        torch.nn.init.normal_(block.attention.encoding.table)
    image = torch.randn(1, 3, 8, 8, dtype=torch.float64)
    tokens = [image[0, :, 2 * y : 2 * y + 2, 2 * x : 2 * x + 2].flatten() for y in range(4) for x in range(4)]
    x = model.patch_embedding(torch.stack(tokens))
    for block in model.blocks:
        attention, normed = block.attention, block.norm1(x)
        q, k, v = (
            p(normed).view(16, 2, 16).transpose(0, 1) for p in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        bias = torch.empty(2, 16, 16, dtype=torch.float64)
        for i in range(16):
            for j in range(16):
                (yi, xi), (yj, xj) = divmod(i, 4), divmod(j, 4)
                bias[:, i, j] = attention.encoding.table[:, (yi - yj + 3) * 7 + xi - xj + 3]
        out = (q @ k.mT / 4 + bias).softmax(-1) @ v
        x = x + attention.out_proj(out.transpose(0, 1).reshape(16, 32))
        x = x + block.mlp(block.norm2(x))
    torch.testing.assert_close(model(image)[0], model.head(model.norm(x.mean(0))))


@pytest.mark.parametrize("encoding", ["none", "shaw", "irpe", "swin_v2", "rope_axial", "sinusoidal", "cpe"])
def test_encodings_without_a_size_take_any_image(encoding):
    assert make(encoding)(torch.randn(1, 3, 12, 16, dtype=torch.float64)).shape == (1, 5)


@pytest.mark.parametrize("encoding", ["table", "learned"])
def test_tables_take_smaller_images_and_name_resize_for_larger_ones(encoding):
    model = make(encoding)
    assert model(torch.randn(1, 3, 4, 6, dtype=torch.float64)).shape == (1, 5)
    with pytest.raises(ValueError, match="resize"):
        model(torch.randn(1, 3, 12, 8, dtype=torch.float64))


@pytest.mark.parametrize("unit", ["patch", "image"])
@pytest.mark.parametrize("size", [4, 8, 12])
@pytest.mark.parametrize("encoding", ["table", "learned", {"far": "table", "turn": "rope_axial"}], ids=str)
def test_tables_are_read_anew_for_another_size(encoding, size, unit):
    model, other = make(encoding), make(encoding)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    other.load_state_dict(model.state_dict())
    for part in other.modules():
        if type(part).__name__ in ("Table", "Learned"):
            part.resize(Grid(size // 2, size // 2), unit)
    images = torch.randn(2, 3, size, size, dtype=torch.float64)
    model.prepare_for_size(size, unit)
    assert torch.equal(model(images), other(images))


def test_a_shared_table_is_read_anew_once():
    table = create_encoding("table", 2, 16, Grid(4, 4))
    model = make(table)
    model.prepare_for_size(12)
    assert all(block.attention.encoding is table for block in model.blocks)
    assert table.relation == Grid(6, 6)


@pytest.mark.parametrize("encoding", ["none", "shaw", "irpe", "swin_v2", "rope_axial", "rope_mixed", "sinusoidal"])
def test_functions_stay_as_they_are_at_another_size(encoding):
    model = make(encoding)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.prepare_for_size(12)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model(torch.randn(1, 3, 12, 12, dtype=torch.float64)).shape == (1, 5)


@pytest.mark.parametrize(("arguments", "message"), [((9,), "multiple of the patch size 2, got 9"), ((8, "px"), "unit")])
def test_sizes_that_do_not_fit(arguments, message):
    model = make("table")
    with pytest.raises(ValueError, match=message):
        model.prepare_for_size(*arguments)
    assert model.blocks[0].attention.encoding.relation == Grid(4, 4)


def test_layers_have_encodings_of_their_own_unless_one_is_built():
    tables = [block.attention.encoding for block in make("table").blocks]
    assert tables[0] is not tables[1]
    shared = create_encoding("table", 2, 16, Grid(4, 4))
    assert all(block.attention.encoding is shared for block in make(shared).blocks)
    assert isinstance(make(Table).blocks[1].attention.encoding, Table)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_size": 9}, "multiple of patch_size"),
        ({"patch_size": 0}, "multiple of patch_size"),
        ({"num_heads": 5}, "multiple of num_heads"),
        ({"encoding": "t5"}, "takes the relation Sequence"),
        ({"encoding": "tabel"}, "did you mean 'table'"),
    ],
)
def test_refuses_what_does_not_fit(options, message):
    with pytest.raises(ValueError, match=message):
        VisionTransformer(**{"encoding": "none", **SIZES, **options})


@pytest.mark.parametrize("shape", [(1, 3, 7, 8), (1, 3, 8, 7), (1, 1, 8, 8), (3, 8, 8)])
def test_refuses_images_that_do_not_fit(shape):
    with pytest.raises(ValueError, match="sides that 2 divides"):
        make("none")(torch.zeros(shape, dtype=torch.float64))


@pytest.mark.parametrize("encoding", ["shaw", "learned"])
def test_meta_device_then_to_empty(encoding):
    model = VisionTransformer(encoding, **SIZES, device="meta", dtype=torch.float64)
    assert all(parameter.is_meta and parameter.dtype == torch.float64 for parameter in model.parameters())
    model.to_empty(device="cpu")
    other = VisionTransformer(encoding, **SIZES, dtype=torch.float64)
    for fresh in (model, other):
        torch.manual_seed(1)
        fresh.reset_parameters()
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_block_adds_to_its_input_and_drops_in_training():
    torch.manual_seed(0)
    block = TransformerBlock(32, 2, "rope", dropout=0.5)
    x = torch.randn(2, 6, 32)
    assert not torch.equal(block(x), block(x))
    block.eval()
    torch.testing.assert_close(block(x), block(x), rtol=0, atol=0)
    for projection in (block.attention.out_proj, block.mlp[2]):
        torch.nn.init.zeros_(projection.weight)
        torch.nn.init.zeros_(projection.bias)
    assert torch.equal(block(x, is_causal=True), x)
