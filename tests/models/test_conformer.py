"""The Conformer: clips in a batch, streams, windows, norms, left and right, and what it refuses."""

from __future__ import annotations

import copy

import pytest
import torch
from tests.encodings.every import DIM, HEADS
from tests.models.sequences import every_encoding
from torch import nn

from relbias.bench.memory import peak_memory
from relbias.encodings import create_encoding
from relbias.models import Conformer
from relbias.models.chunk_mask import chunk_mask
from relbias.models.frame_norms import FrameBatchNorm, FrameGroupNorm

SIZES = {"input_dim": DIM, "num_heads": HEADS, "ffn_dim": 48, "num_layers": 2, "depthwise_conv_kernel_size": 5}


def make(encoding="transformer_xl", **options):
    """In float64, in evaluation mode, with weights so large and statistics so uneven that they matter."""
    torch.manual_seed(0)
    model = Conformer(encoding, **{**SIZES, **options}).double().eval()
    for name, value in model.state_dict().items():
        if "encoding" not in name and "position" not in name and value.is_floating_point():
            value.uniform_(0.5, 1.5) if name.endswith("running_var") else value.normal_(std=0.4)
    return model


def frames(batch=2, length=11, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, length, DIM, dtype=torch.float64, generator=generator)


def close(ours, theirs, tolerance=1e-10):
    torch.testing.assert_close(ours, theirs, rtol=0, atol=tolerance)


@every_encoding()
@pytest.mark.parametrize("use_group_norm", [False, True], ids=["batch norm", "group norm"])
def test_a_clip_is_the_same_in_a_batch(made, use_group_norm):
    model, x, lengths = make(made.encoding(), use_group_norm=use_group_norm), frames(3), torch.tensor([11, 7, 1])
    for item, length in enumerate(lengths):
        x[item, length:] = torch.nan  # nothing of it is looked at
    with torch.no_grad():
        output, kept = model(x, lengths)
        assert torch.equal(kept, lengths)
        for item, length in enumerate(lengths):
            alone, _ = model(x[item : item + 1, :length], lengths[item : item + 1])
            close(output[item, :length], alone[0])
            assert (output[item, length:] == 0).all()


@pytest.mark.parametrize("options", [{}, {"window": (3, 2)}, {"chunk": 4, "left_context": 3}], ids=str)
def test_gradients_of_a_batch_are_the_sum_of_its_clips(options):
    lengths = torch.tensor([11, 7, 4])
    for use_group_norm in (False, True)[: 1 if "chunk" in options else 2]:
        model = make(use_group_norm=use_group_norm, **options)
        batch, clips = (
            frames(3).requires_grad_(),
            [frames(3)[i : i + 1, :n].requires_grad_() for i, n in enumerate(lengths)],
        )
        output, _ = model(batch, lengths)
        output.square().sum().backward()
        together = {name: parameter.grad for name, parameter in model.named_parameters()}
        model.zero_grad()
        for clip in clips:
            model(clip, torch.tensor([clip.shape[1]]))[0].square().sum().backward()
        for name, parameter in model.named_parameters():
            close(together[name], parameter.grad, 1e-10 * max(1.0, float(parameter.grad.abs().max())))
        for item, (clip, length) in enumerate(zip(clips, lengths, strict=True)):
            close(batch.grad[item, :length], clip.grad[0], 1e-9)
            assert (batch.grad[item, length:] == 0).all()


@pytest.mark.parametrize("momentum", [0.1, None])
def test_batch_norm_in_training_is_torchs_over_the_valid_frames(momentum):
    lengths = torch.tensor([11, 7, 1])
    padding = torch.arange(11) >= lengths[:, None]
    ours, theirs = (cls(DIM, momentum=momentum, dtype=torch.float64) for cls in (FrameBatchNorm, nn.BatchNorm1d))
    for norm in (ours, theirs):
        torch.manual_seed(2)
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    mine, other = frames(3).requires_grad_(), frames(3).requires_grad_()
    for _ in range(2):  # the second call has statistics from before
        output = ours(mine.mT, padding).mT[~padding]
        expected = theirs(other[~padding])
        close(output, expected)
    cotangent = torch.randn_like(expected)
    output.backward(cotangent)
    expected.backward(cotangent)
    close(mine.grad, other.grad)
    close(ours.weight.grad, theirs.weight.grad)
    close(ours.bias.grad, theirs.bias.grad)
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        close(getattr(ours, name), getattr(theirs, name))
    close(ours.eval()(mine.mT, padding).mT[~padding], theirs.eval()(other[~padding]))


def test_group_norm_is_torchs_over_a_clip():
    lengths = torch.tensor([11, 7, 1])
    ours, theirs = FrameGroupNorm(DIM, dtype=torch.float64), nn.GroupNorm(1, DIM, dtype=torch.float64)
    for norm in (ours, theirs):
        torch.manual_seed(2)
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    output = ours(frames(3).mT, torch.arange(11) >= lengths[:, None])
    for item, length in enumerate(lengths):
        close(output[item, :, :length], theirs(frames(3)[item : item + 1, :length].mT)[0])
    close(ours(frames(3).mT), theirs(frames(3).mT))


@every_encoding(without=("cope",))
@pytest.mark.parametrize("convolution_first", [False, True], ids=["attention first", "convolution first"])
def test_a_stream_equals_all_frames_at_once(made, convolution_first):
    model = make(made.encoding(), chunk=4, left_context=6, convolution_first=convolution_first)
    x = frames(2, 19)
    with torch.no_grad():
        expected, _ = model(x, torch.tensor([19, 19]))
        past = model.new_stream()
        output = torch.cat([model.stream(piece, past) for piece in x.split([4, 8, 4, 3], dim=1)], dim=1)
    close(output, expected)
    assert past.seen == 19
    assert {cache.length for cache in past.caches} == {6}
    assert {tuple(rows.shape) for rows in past.frames} == {(2, DIM, 4)}


def test_a_stream_counts_positions_from_its_start():
    """FIRE divides by the query's position, which a cache of the last frames alone does not tell."""
    encoding = create_encoding("fire", HEADS, DIM // HEADS, threshold=2.0).double()
    model, x = make(encoding, chunk=4, left_context=6), frames(1, 19)
    past = model.new_stream()
    with torch.no_grad():
        output = torch.cat([model.stream(piece, past) for piece in x.split(4, dim=1)], dim=1)
        close(output, model(x, torch.tensor([19]))[0])


def test_a_stream_with_all_of_the_past():
    model, x = make(chunk=4), frames(1, 15)
    past = model.new_stream()
    output = torch.cat([model.stream(piece, past) for piece in x.split(4, dim=1)], dim=1)
    close(output, model(x, torch.tensor([15]))[0])
    assert {cache.length for cache in past.caches} == {15}


@pytest.mark.parametrize("convolution", [1, 4], ids=["kernel 1", "even kernel"])
def test_kernels_of_a_stream(convolution):
    model, x = make(chunk=4, left_context=2, depthwise_conv_kernel_size=convolution), frames(1, 10)
    past = model.new_stream()
    output = torch.cat([model.stream(piece, past) for piece in x.split(4, dim=1)], dim=1)
    close(output, model(x, torch.tensor([10]))[0])


@pytest.mark.parametrize("left_context", [None, 0, 1, 5])
@pytest.mark.parametrize("chunk", [1, 3, 20])
def test_the_mask_of_chunks_equals_a_loop(chunk, left_context):
    expected = torch.zeros(10, 10, dtype=torch.bool)
    for i in range(10):
        for j in range(10):
            begin = i // chunk * chunk
            expected[i, j] = j < begin + chunk and (left_context is None or j >= begin - left_context)
    assert torch.equal(chunk_mask(10, chunk, left_context), expected)


@pytest.mark.parametrize(
    ("options", "seen"),
    [
        ({"depthwise_conv_kernel_size": 1, "window": (2, 1)}, range(5, 9)),
        ({"depthwise_conv_kernel_size": 1, "chunk": 4, "left_context": 1}, range(3, 8)),
        ({"depthwise_conv_kernel_size": 3, "chunk": 4, "left_context": 0}, range(4, 8)),
        ({"depthwise_conv_kernel_size": 7, "chunk": 4, "left_context": 0}, range(8)),
    ],
    ids=str,
)
def test_which_frames_one_frame_sees(options, seen):
    """The 8th of 12: its chunk is 4 to 7; a convolution of 7 frames reaches back to 1, which attends from 0 to 3."""
    model, x, lengths = make(num_layers=1, **options), frames(1, 12), torch.tensor([12])
    with torch.no_grad():
        before = model(x, lengths)[0][0, 7]
        changed = []
        for j in range(12):
            other = x.clone()
            other[0, j] += 1
            changed.append(not torch.equal(model(other, lengths)[0][0, 7], before))
    assert [j for j, differs in enumerate(changed) if differs] == list(seen)


def turns_with_time(model):
    """Whether frames in the opposite order give the outputs in the opposite order."""
    x, lengths = frames(), torch.tensor([11, 11])
    with torch.no_grad():
        return torch.allclose(model(x.flip(1), lengths)[0].flip(1), model(x, lengths)[0])


def test_left_and_right_are_told_apart():
    """A convolution of one frame knows nothing of time, so the attention is all that can."""
    options = {"depthwise_conv_kernel_size": 1}
    for encoding in ("none", "alibi"):  # of distances alone
        assert turns_with_time(make(encoding, **options))
    for encoding in ("transformer_xl", "rope", "t5", "shaw"):
        assert not turns_with_time(make(encoding, **options))
    model = make("transformer_xl", **options)
    for block in model.blocks:  # sinusoids of |i - j|, as in a shipped toolkit, cannot
        keys = block.attention.encoding.keys
        block.attention.encoding.keys = lambda distances, keys=keys: keys(distances.abs())
    assert turns_with_time(model)


def peak_of_a_step(model, length):
    x, lengths = torch.randn(1, length, DIM), torch.tensor([length])
    return peak_memory(lambda: model(x, lengths)[0].sum().backward(), x.device)


def test_memory_is_linear_in_the_length():
    """In training, with a window and without: no N x N map is held."""
    for window in (None, (32, 32)):
        model = Conformer("transformer_xl", **{**SIZES, "num_layers": 1}, window=window)
        peaks = [peak_of_a_step(model, length) for length in (1024, 2048)]
        assert peaks[1] < 2.2 * peaks[0]
        assert peaks[1] < HEADS * 2048**2 * 4  # one map for every head


def test_memory_of_a_stream_does_not_grow():
    model = Conformer("transformer_xl", **SIZES, chunk=16, left_context=64).eval()
    past, x = model.new_stream(), torch.randn(1, 16, DIM)

    def run(chunks):
        with torch.no_grad():
            for _ in range(chunks):
                model.stream(x, past)

    run(8)  # the left context is full
    few, many = (peak_memory(lambda chunks=chunks: run(chunks), x.device) for chunks in (4, 40))
    assert many < 1.1 * few, (few, many)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depthwise_conv_kernel_size": 4}, "depthwise_conv_kernel_size must be odd"),
        ({"input_dim": 30}, "multiple of num_heads, got 30 and 4"),
        ({"num_layers": 0}, "num_layers must be"),
        ({"ffn_dim": 0}, "ffn_dim must be"),
        ({"chunk": 0}, "chunk must be"),
        ({"left_context": 4}, "give chunk as well"),
        ({"chunk": 4, "left_context": -1}, "left_context must be"),
        ({"chunk": 4, "window": (2, 2)}, "give one of the two"),
        ({"chunk": 4, "use_group_norm": True}, "use BatchNorm with chunk"),
        ({"encoding": "rop"}, "'rope'"),
        ({"encoding": "table"}, "limit"),
        ({"dropout": 2.0}, "dropout"),
    ],
    ids=str,
)
def test_refuses_options_that_do_not_fit(options, message):
    with pytest.raises(ValueError, match=message):
        Conformer(**{**SIZES, **options})


@pytest.mark.parametrize(
    ("x", "lengths", "message"),
    [
        (frames()[0], torch.tensor([11, 11]), r"\(B, T, 32\)"),
        (frames()[..., :3], torch.tensor([11, 11]), r"\(B, T, 32\)"),
        (frames()[:, :0], torch.tensor([0, 0]), "T >= 1"),
        (frames(), torch.tensor([11]), r"shape \(2,\)"),
        (frames(), torch.tensor([12, 3]), "got 12"),
        (frames(), torch.tensor([11, 0]), "got 0"),
        (frames(), torch.tensor([11.0, 3.0]), "integers"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_refuses_clips_that_do_not_fit(x, lengths, message):
    with pytest.raises(ValueError, match=message):
        make()(x, lengths)


def test_refuses_streams_that_do_not_fit_and_keeps_the_past():
    whole = make()
    with pytest.raises(ValueError, match="build the Conformer with chunk="):
        whole.new_stream()
    model, x = make("learned", chunk=4, left_context=4, max_length=10), frames(2, 10)
    past = model.new_stream()
    with torch.no_grad():
        first = model.stream(x[:, :4], past)
        for wrong, message in (
            (x[..., :3], r"\(B, T, 32\)"),
            (x[:1, 4:8], "the past is of 2 clips, got 1"),
            (x[:, :8], "'learned' has 10 positions, got 12"),
        ):
            with pytest.raises(ValueError, match=message):
                model.stream(wrong, past)
        assert past.seen == 4
        rest = model.stream(x[:, 4:], past)
        close(torch.cat((first, rest), dim=1), model(x, torch.tensor([10, 10]))[0])
        with pytest.raises(ValueError, match="has ended"):
            model.stream(x[:, :4], past)
        counting = make("cope", chunk=4)
        with pytest.raises(ValueError, match="does not work with a cache"):
            counting.stream(x, counting.new_stream())
        with pytest.raises(ValueError, match="of another model"):
            make(chunk=4, num_layers=1).stream(x[:, :4], model.new_stream())


def test_meta_device_then_to_empty():
    options = {**SIZES, "use_group_norm": True, "dtype": torch.float64}
    empty, other = Conformer("shaw", **options, device="meta").to_empty(device="cpu"), Conformer("shaw", **options)
    for fresh in (empty, other):
        torch.manual_seed(1)
        fresh.reset_parameters()
    assert all(map(torch.equal, empty.state_dict().values(), other.state_dict().values()))


def test_bfloat16_a_copy_and_dropout():
    model = Conformer("t5", **SIZES, use_group_norm=True, dropout=0.5)
    x, lengths = torch.randn(2, 9, DIM), torch.tensor([9, 5])
    with torch.autocast("cpu", torch.bfloat16):
        assert model(x, lengths)[0].isfinite().all()
    twin = copy.deepcopy(model).eval()
    with torch.no_grad():
        assert torch.equal(twin(x, lengths)[0], model.eval()(x, lengths)[0])
        assert not torch.equal(model.train()(x, lengths)[0], twin(x, lengths)[0])


def test_compiles_in_one_graph():
    model, x, lengths = make(num_layers=1), frames(), torch.tensor([11, 7])
    with torch.no_grad():
        compiled = torch.compile(model, fullgraph=True, backend="eager")
        close(compiled(x, lengths)[0], model(x, lengths)[0])


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"use_group_norm": True}, {"chunk": 4, "left_context": 4}], ids=str)
def test_exports(options):
    model, x, lengths = make(num_layers=1, **options), frames(), torch.tensor([11, 7])
    with torch.no_grad():
        close(torch.export.export(model, (x, lengths)).module()(x, lengths)[0], model(x, lengths)[0])
