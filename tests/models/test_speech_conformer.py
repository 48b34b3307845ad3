"""A Conformer with convolutions before it and outputs after it: clips in a batch, streams, and tasks that train it."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from relbias.models import SpeechConformer

SIZES = {"num_outputs": 5, "num_mels": 7, "dim": 16, "depth": 2, "num_heads": 2, "kernel_size": 3}


def make(encoding="rope", **options):
    torch.manual_seed(0)
    model = SpeechConformer(encoding, **{**SIZES, **options}).double().eval()
    for name, value in model.state_dict().items():
        if value.is_floating_point():
            value.uniform_(0.5, 1.5) if name.endswith("running_var") else value.normal_(std=0.3)
    return model


def frames(batch, length):
    return torch.randn(batch, length, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("factor", [2, 4])
@pytest.mark.parametrize("options", [{}, {"chunk": 2, "left_context": 3}], ids=str)
def test_a_clip_is_the_same_in_a_batch(factor, options):
    model, x, lengths = make(factor=factor, **options), frames(3, 21), torch.tensor([21, 10, 1])
    with torch.no_grad():
        output, kept = model(x, lengths)
        assert output.shape == (3, -(-21 // factor), 5)
        for item, length in enumerate(lengths):
            alone, (count,) = model(x[item : item + 1, :length], lengths[item : item + 1])
            assert kept[item] == count == alone.shape[1]
            torch.testing.assert_close(output[item, :count], alone[0], rtol=0, atol=1e-10)


def test_a_stream_equals_all_frames_at_once_and_keeps_the_past_where_it_refuses():
    model, x = make("learned", chunk=2, left_context=3, max_length=6), frames(2, 21)
    past = model.new_stream()
    with torch.no_grad():
        pieces = [model.stream(x[:, :16], past)]
        with pytest.raises(ValueError, match="'learned' has 6 positions, got 8"):
            model.stream(x[:, :16], past)
        pieces.append(model.stream(x[:, 16:], past))
        expected, _ = model(x, torch.tensor([21, 21]))
    torch.testing.assert_close(torch.cat(pieces, dim=1), expected, rtol=0, atol=1e-10)
    with pytest.raises(ValueError, match="has ended"):
        model.stream(x[:, :8], past)
    with pytest.raises(ValueError, match="build the Conformer with chunk="):
        make().new_stream()


def test_a_task_trains_it():
    """Clips of two classes that have the same frames in the opposite order."""
    from relbias.tasks import AudioClassification

    torch.manual_seed(0)
    task = AudioClassification(partial(SpeechConformer, **{**SIZES, "num_outputs": 2}), "rope", num_classes=2)
    lengths = torch.tensor([24, 24, 13, 13])
    x = torch.randn(4, 24, 7)
    for item in (0, 2):
        x[item + 1, : lengths[item]] = x[item, : lengths[item]].flip(0)
    labels = torch.tensor([0, 1, 0, 1])
    task.check_batch((x, lengths, labels))
    optimizer = torch.optim.AdamW(task.parameters(), lr=1e-2)
    losses = []
    for _ in range(30):
        loss = torch.nn.functional.cross_entropy(task(x, lengths), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.1 < losses[0]


def test_refuses_sizes_that_do_not_fit():
    for options, message in (
        ({"num_outputs": 0}, "num_outputs must be"),
        ({"dim": 0}, "dim must be"),
        ({"factor": 3}, "power of 2"),
        ({"num_heads": 3}, "multiple of num_heads"),
    ):
        with pytest.raises(ValueError, match=message):
            make(**options)


def test_meta_device_then_to_empty():
    empty = SpeechConformer("shaw", **SIZES, device="meta").to_empty(device="cpu")
    other = SpeechConformer("shaw", **SIZES)
    for fresh in (empty, other):
        torch.manual_seed(1)
        fresh.reset_parameters()
    assert all(map(torch.equal, empty.state_dict().values(), other.state_dict().values()))
