import pytest
import torch
from torch.nn import functional as F

from relbias import list_encodings
from relbias.encodings.base import find_encoding
from relbias.models import SpectrogramTransformer
from relbias.relations import Grid

SIZES = {
    "num_classes": 5, "num_mels": 6, "num_frames": 12, "patch_size": (2, 3), "dim": 32, "depth": 2, "num_heads": 2
}  # fmt: skip
GRIDS = [name for name in list_encodings() if issubclass(Grid, find_encoding(name).relations)]
ENCODINGS = [*GRIDS, {"far": "table", "turn": "rope_axial"}]


def make(encoding, **options):
    torch.manual_seed(0)
    return SpectrogramTransformer(encoding, **{**SIZES, **options}).double().eval()


def drawn(encoding, **options):
    """A network whose parameters all matter."""
    model = make(encoding, **options)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def clips(*lengths):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(length, 6, dtype=torch.float64, generator=generator) for length in lengths]


def test_the_encodings_of_a_grid_are_here():
    assert {"table", "irpe", "rope_axial", "swin_v2", "alibi", "learned", "cpe", "none"} <= {*GRIDS}


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_a_clip_in_a_batch_is_what_it_is_alone(encoding):
    model, alone = drawn(encoding), clips(12, 7, 1, 10)
    lengths = torch.tensor([len(clip) for clip in alone])
    batch = torch.full((4, 12, 6), torch.nan, dtype=torch.float64)  # padding may hold anything
    for row, clip in zip(batch, alone, strict=True):
        row[: len(clip)] = clip
    expected = torch.cat([model(clip[None]) for clip in alone])
    torch.testing.assert_close(model(batch, lengths), expected)
    assert (expected[0] - expected[3]).abs().max() > 1e-3


@pytest.mark.parametrize("encoding", ["none", "table", "cpe", "rope_axial"])
def test_padding_has_no_gradient_and_harms_none(encoding):
    model = drawn(encoding)
    batch = torch.randn(2, 12, 6, dtype=torch.float64, requires_grad=True)
    F.cross_entropy(model(batch, torch.tensor([12, 5])), torch.tensor([1, 2])).backward()
    assert (batch.grad[1, 5:] == 0).all()
    assert (batch.grad[1, :5] != 0).all()
    # A bias of the keys shifts all logits of a query alike: without a rotation it has no gradient.
    names = [n for n, p in model.named_parameters() if p.grad is None or p.grad.abs().max() < 1e-12]
    assert all(name.endswith("k_proj.bias") for name in names)


def test_equals_the_model_written_down():
    """With the code of patch (f, t) against (f', t'): 2 bands, 6 times, so (f - f' + 1) 11 + t - t' + 5."""
    model = drawn("table", num_heads=4)
    clip = clips(9)[0]
    tokens, places = [], []
    for f in range(2):
        for t in range(5):
            patch = [clip[frame, 3 * f + q] if frame < 9 else 0.0 for frame in (2 * t, 2 * t + 1) for q in range(3)]
            tokens.append(torch.tensor(patch, dtype=torch.float64))
            places.append((f, t))
    x = model.patch_embedding(torch.stack(tokens))
    for block in model.blocks:
        attention, normed = block.attention, block.norm1(x)
        q, k, v = (
            p(normed).view(10, 4, 8).transpose(0, 1) for p in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        bias = torch.empty(4, 10, 10, dtype=torch.float64)
        for i, (fi, ti) in enumerate(places):
            for j, (fj, tj) in enumerate(places):
                bias[:, i, j] = attention.encoding.table[:, (fi - fj + 1) * 11 + ti - tj + 5]
        out = (q @ k.mT / 8**0.5 + bias).softmax(-1) @ v
        x = x + attention.out_proj(out.transpose(0, 1).reshape(10, 32))
        x = x + block.mlp(block.norm2(x))
    torch.testing.assert_close(model(clip[None], torch.tensor([9]))[0], model.head(model.norm(x.mean(0))))


def test_the_order_in_time_is_seen_with_an_encoding_alone():
    clip = clips(12)[0]
    parts = clip.view(6, 2, 6)[torch.tensor([3, 0, 5, 1, 4, 2])].reshape(12, 6)
    torch.testing.assert_close(drawn("none")(parts[None]), drawn("none")(clip[None]))
    for name in ("table", "rope_axial", "alibi"):
        assert (drawn(name)(parts[None]) - drawn(name)(clip[None])).abs().max() > 1e-3


def test_longer_clips():
    clip = clips(20)[0][None]
    for name in ("none", "alibi", "rope_axial", "swin_v2", "sinusoidal", "irpe"):
        assert drawn(name)(clip).shape == (1, 5)
    for name in ("table", "learned"):
        model = drawn(name)
        with pytest.raises(ValueError, match="resize"):
            model(clip)
        short = model(clip[:, :12])
        model.prepare_for_size(20)
        assert model(clip).shape == (1, 5)
        torch.testing.assert_close(model(clip[:, :12]), short)  # offsets in patches keep their numbers


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patch_size": (2, 4)}, "num_mels must be a multiple of a patch's bands, got 6 and 4"),
        ({"patch_size": (0, 3)}, "patch_size"),
        ({"patch_size": (1, 2, 3)}, r"patch_size is \(frames, bands\), got \(1, 2, 3\)"),
        ({"num_frames": 0}, "num_frames"),
        ({"num_heads": 5}, "dim must be a multiple of num_heads, got dim=32 and num_heads=5"),
    ],
)
def test_sizes_that_do_not_fit(options, message):
    with pytest.raises(ValueError, match=message):
        make("none", **options)


def test_inputs_that_do_not_fit():
    model = make("none")
    for shape in ((2, 12, 5), (12, 6), (2, 0, 6)):
        with pytest.raises(ValueError, match=r"features must be \(B, T, 6\) with a frame, got"):
            model(torch.zeros(shape, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"lengths must be a tensor of shape \(2,\), got \(3,\)"):
        model(torch.zeros(2, 12, 6, dtype=torch.float64), torch.tensor([1, 2, 3]))
    with pytest.raises(ValueError, match="lengths must be from 1 to the 12 frames that there are, got 0"):
        model(torch.zeros(2, 12, 6, dtype=torch.float64), torch.tensor([1, 0]))
    with pytest.raises(ValueError, match="size"):
        model.prepare_for_size(0)
    with pytest.raises(ValueError, match="unit"):
        model.prepare_for_size(20, "frames")
