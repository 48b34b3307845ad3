"""Convolutions with a stride: lengths and values against loops, clips in a batch, streams, and what it refuses."""

from __future__ import annotations

import pytest
import torch

from relbias.models import ConvSubsampling, FrameStream


def make(**options):
    torch.manual_seed(0)
    sizes = {"input_dim": 7, "output_dim": 6, "channels": 3, **options}
    return ConvSubsampling(**sizes, dtype=torch.float64)


def frames(batch, length):
    return torch.randn(batch, length, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def in_loops(model, clip):
    """The frames of one clip without padding, (T, F), window by window."""
    maps = clip[None]
    for convolution in model.convolutions:
        _, height, width = maps.shape
        rows = []
        start = -model.left
        while start + model.left < height:  # a window is kept if the frame that it is about is there
            row = []
            for column in range(-1, width - 1, 2):
                value = convolution.bias.clone()
                for dy in range(3):
                    for dx in range(3):
                        y, x = start + dy, column + dx
                        if 0 <= y < height and 0 <= x < width:
                            value = value + convolution.weight[:, :, dy, dx] @ maps[:, y, x]
                row.append(value.clamp(min=0))
            rows.append(torch.stack(row, dim=-1))
            start += 2
        maps = torch.stack(rows, dim=1)
    return torch.stack([model.project.weight @ maps[:, t].flatten() + model.project.bias for t in range(maps.shape[1])])


@pytest.mark.parametrize("causal", [False, True], ids=["both sides", "causal"])
@pytest.mark.parametrize("factor", [2, 4, 8])
def test_values_and_lengths_equal_loops(factor, causal):
    model, lengths = make(factor=factor, causal=causal), torch.tensor([9, 8, 5, 2, 1])
    x = frames(5, 9)
    for item, length in enumerate(lengths):
        x[item, length:] = torch.nan
    with torch.no_grad():
        output, kept = model(x, lengths)
        for item, length in enumerate(lengths):
            expected = in_loops(model, x[item, :length])
            assert kept[item] == len(expected)
            torch.testing.assert_close(output[item, : len(expected)], expected, rtol=0, atol=1e-10)
            assert (output[item, len(expected) :] == 0).all()


@pytest.mark.parametrize("factor", [2, 4, 8])
def test_lengths_are_those_of_each_clip_alone(factor):
    model, lengths = make(factor=factor), torch.arange(1, 41)
    _, kept = model(frames(40, 40), lengths)
    alone = [model(frames(1, int(n)), torch.tensor([n]))[0].shape[1] for n in lengths]
    assert kept.tolist() == alone == [-(-int(n) // factor) for n in lengths]


@pytest.mark.parametrize("pieces", [[4, 8, 4, 3], [16, 3], [4, 4, 4, 4, 1]], ids=str)
def test_a_stream_equals_all_frames_at_once(pieces):
    model, x = make(causal=True), frames(2, sum(pieces))
    past = FrameStream()
    with torch.no_grad():
        output = torch.cat([model.stream(piece, past) for piece in x.split(pieces, dim=1)], dim=1)
        expected, _ = model(x, torch.tensor([sum(pieces)] * 2))
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="has ended"):
        model.stream(x[:, :4], past)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"factor": 3}, "power of 2, got 3"),
        ({"factor": 1}, "factor must be"),
        ({"channels": 0}, "channels must be"),
        ({"input_dim": 0}, "input_dim must be"),
    ],
    ids=str,
)
def test_refuses_sizes_that_do_not_fit(options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_refuses_frames_that_do_not_fit():
    for x, lengths, message in (
        (frames(2, 5)[0], torch.tensor([5, 5]), r"\(B, T, 7\)"),
        (frames(2, 0), torch.tensor([0, 0]), "T >= 1"),
        (frames(2, 5), torch.tensor([6, 5]), "got 6"),
        (frames(2, 5), torch.tensor([0, 5]), "got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            make()(x, lengths)
    model, past = make(causal=True), FrameStream()
    model.stream(frames(2, 4), past)
    with pytest.raises(ValueError, match="of 2 clips, got 1"):
        model.stream(frames(1, 4), past)
    with pytest.raises(ValueError, match="causal=True"):
        make().stream(frames(1, 4), FrameStream())


def test_meta_device_then_to_empty():
    empty = ConvSubsampling(7, 6, dtype=torch.float64, device="meta").to_empty(device="cpu")
    other = ConvSubsampling(7, 6, dtype=torch.float64)
    for fresh in (empty, other):
        torch.manual_seed(1)
        fresh.reset_parameters()
    assert all(map(torch.equal, empty.parameters(), other.parameters()))
    assert ConvSubsampling(7, 6).convolutions[0].out_channels == 6
