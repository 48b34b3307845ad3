"""Chorales: files, windows, transposition; and what a test over them counts."""

from __future__ import annotations

import json

import pytest
import torch
from lightning.pytorch import Trainer

from relbias.data import Chorales
from relbias.data.chorale_files import REST, START, read_chorales
from relbias.data.windows import IGNORED
from relbias.models import HoldAndBigram, MusicTransformer
from relbias.tasks import NextNote

SMALL = {"voices": 2, "steps_per_bar": 4, "length": 16}  # bars of 8 tokens


def piece(steps, voices=2, low=60, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (low + torch.randint(12, (steps, voices), generator=generator) - 12 * torch.arange(voices)).tolist()


@pytest.fixture
def write(tmp_path):
    def write(pieces, **others):
        path = tmp_path / "music.json"
        path.write_text(json.dumps({"train": pieces, "valid": [piece(9)], "test": [piece(21), piece(5)], **others}))
        return str(path)

    return write


def test_a_file_is_read_in_its_parts(write):
    path = write([[[60, -1], [62, 48.0]]], comment="not a part")
    parts = read_chorales(path, voices=2)
    assert [len(parts[name]) for name in ("train", "val", "test")] == [1, 1, 2]
    assert parts["train"][0].tolist() == [[60, REST], [62, 48]]
    assert parts["train"][0].dtype == torch.int64


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "there is no file"),
        ("[1", "music.json is not JSON: "),
        ("[]", "holds a list, expected an object"),
        ('{"train": [], "test": []}', r"has no \['val'\], it has \['test', 'train'\]"),
        ('{"train": null, "val": [], "test": []}', "music.json has a NoneType in train, expected a list of pieces"),
        ('{"train": [[[60, 61]], []], "val": [], "test": []}', "piece 1 of train is not a list of 1 to"),
        ('{"train": [[[60, 61], [60]]], "val": [], "test": []}', r"piece 0 of train: step 1 is \[60\], expected 2"),
        ('{"train": [], "val": [[[60, NaN]]], "test": []}', "piece 0 of val: step 0 has the pitch nan"),
        ('{"train": [], "val": [], "test": [[[60, 128]]]}', "has the pitch 128, expected a MIDI pitch"),
        ('{"train": [], "val": [], "test": [[[60, "C4"]]]}', "has the pitch 'C4'"),
        ('{"train": [], "val": [], "test": [[[60, 60.5]]]}', "has the pitch 60.5"),
    ],
)
def test_files_that_are_refused(tmp_path, text, message):
    path = tmp_path / "music.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_chorales(path, voices=2)


@pytest.mark.parametrize("steps", [16, 18])
def test_training_windows_begin_at_bars_and_know_the_note_before(write, steps):
    whole = piece(steps)
    data = Chorales(write([whole, piece(3, seed=1)]), **SMALL, batch_size=3, transpose=0)
    data.setup()
    notes = [note for step in whole for note in step]
    windows = {}
    for tokens, targets in data.train_dataloader():
        assert tokens.dtype == targets.dtype == torch.int64
        for row, follow in zip(tokens.tolist(), targets.tolist(), strict=True):
            windows[tuple(row)] = follow
    expected = {tuple(([START, *notes])[first : first + 16]): notes[first : first + 16] for first in (0, 8, 16)}
    short = [note for step in piece(3, seed=1) for note in step]
    expected[(START, *short, *[START] * 9)] = [*short, *[IGNORED] * 10]
    assert windows == expected


@pytest.mark.parametrize("length", [16, 32])
def test_every_note_of_the_test_is_predicted_once_from_what_came_before_it(write, length):
    pieces = [piece(steps, seed=steps) for steps in (21, 5, 16, 8, 4)]
    data = Chorales(write([piece(9)], test=pieces), **SMALL, batch_size=2)
    data.setup()
    counted = []
    for tokens, targets in data.test_dataloader_at(length):
        for row, follow in zip(tokens.tolist(), targets.tolist(), strict=True):
            for place, note in enumerate(follow):
                if note != IGNORED:
                    counted.append((tuple(row[: place + 1]), note))
    expected = []
    for each in pieces:
        notes = [note for step in each for note in step]
        for place, note in enumerate(notes):
            half = length // 2
            start = max(0, (place // half - 1) * half)
            expected.append((tuple(([START, *notes])[start : place + 1]), note))
    assert sorted(counted) == sorted(expected)


def test_transposition_keeps_each_voice_in_its_range(write):
    pieces = [piece(8, low=60), piece(8, low=64), [[70, -1], [70, -1], [71, -1], [71, -1]]]
    data = Chorales(write(pieces), **SMALL, transpose=5)
    data.setup()
    torch.manual_seed(0)
    ranges = [(min(p), max(p)) for p in zip(*(s for each in pieces for s in each), strict=True)]
    lowest = min(pitch for each in pieces for _, pitch in each if pitch >= 0)
    seen = set()
    sampler = data.train_dataloader().sampler
    for epoch in range(60):
        loader = data.train_dataloader()
        loader.sampler.set_epoch(epoch)
        for tokens, targets in loader:
            sounding = targets.reshape(len(targets), -1, 2)
            assert sounding[..., 0][sounding[..., 0] != IGNORED].max() <= ranges[0][1]
            low = sounding[..., 1][(sounding[..., 1] != IGNORED) & (sounding[..., 1] != REST)]
            assert not low.numel() or low.min() >= lowest
            assert torch.equal(tokens[:, 1:][targets[:, :-1] != IGNORED], targets[:, :-1][targets[:, :-1] != IGNORED])
            assert (tokens[:, 0] == START).all()
            seen |= {int(row[0]) for row in targets if REST in row}
    assert sampler.dataset == range(len(data._windows))
    assert len(seen) > 3
    assert min(seen) >= 65  # 70 less at most 5
    assert max(seen) == 70 + min(ranges[0][1] - 71, 5) > 70
    silent = next(targets for tokens, targets in data.train_dataloader() if REST in targets)
    assert (silent[(silent == REST).any(1)][:, 1:8:2] == REST).all()  # a rest stays one


def test_the_same_seed_and_epoch_give_the_same_batches(write):
    def batches(epoch):
        data = Chorales(write([piece(30)]), **SMALL)
        data.setup()
        torch.manual_seed(1)
        loader = data.train_dataloader()
        loader.sampler.set_epoch(epoch)
        return torch.cat([tokens for tokens, _ in loader])

    assert torch.equal(batches(3), batches(3))
    assert not torch.equal(batches(3), batches(4))


def test_pieces_that_changed_are_noticed(write):
    data = Chorales(write([piece(9)]), **SMALL)
    data.setup()
    found = data.found["fingerprint"]
    Chorales(write([piece(9)]), **SMALL, fingerprint=found).setup()
    with pytest.raises(ValueError, match="the pieces have changed"):
        Chorales(write([piece(9, seed=1)]), **SMALL, fingerprint=found).setup()
    with pytest.raises(ValueError, match="has no pieces in train"):
        Chorales(write([]), **SMALL).setup()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"length": 24}, "a multiple of 16 tokens, two bars; got 24"),
        ({"test_lengths": [40]}, "a multiple of 16 tokens, two bars; got 40"),
        ({"test_lengths": [16]}, "which is tested anyway"),
        ({"transpose": -1}, "transpose must be an integer of at least 0"),
        ({"voices": 0}, "voices must be an integer of at least 1"),
    ],
)
def test_arguments_out_of_range(arguments, message):
    with pytest.raises(ValueError, match=message):
        Chorales("music.json", **{**SMALL, **arguments})


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ({"voices": 4, "steps_per_bar": 4}, "has voices 2 and the network 4"),
        ({"voices": 2}, "has steps_per_bar 4 and the network 16"),
        ({"voices": 2, "steps_per_bar": 4, "num_tokens": 100}, "130 different tokens and the network's num_tokens is"),
    ],
)
def test_a_network_that_does_not_fit_is_refused(network, message):
    task = NextNote(lambda encoding: MusicTransformer(encoding, dim=8, depth=1, num_heads=2, **network), "none")
    with pytest.raises(ValueError, match=message):
        Chorales("music.json", **SMALL).adapt_to(task)


def test_the_loss_of_the_test_is_the_mean_over_its_notes_at_each_length(write):
    data = Chorales(write([piece(40)]), **SMALL, test_lengths=[32])
    torch.manual_seed(0)
    task = NextNote(lambda _: HoldAndBigram(voices=2, steps_per_beat=2), "none")
    torch.nn.init.normal_(task.network.following)
    quiet = {
        "logger": False,
        "enable_progress_bar": False,
        "enable_checkpointing": False,
        "enable_model_summary": False,
    }
    (first, *others) = Trainer(accelerator="cpu", **quiet).test(task, data, verbose=False)
    found = {key: value for each in (first, *others) for key, value in each.items()}
    total, notes = 0.0, 0
    for each in data.test:  # the whole piece at once: the bigram needs one step of context
        whole = torch.cat((torch.tensor([START]), each.flatten()))[None]
        log = task.network(whole[:, :-1])[0].log_softmax(-1)
        total -= float(log.gather(1, whole[0, 1:, None]).sum().detach())
        notes += each.numel()
    assert found == {
        "test/loss": pytest.approx(total / notes, rel=1e-5),
        "test/loss_32": pytest.approx(total / notes, rel=1e-5),
        "test/perplexity": pytest.approx(torch.tensor(total / notes).exp().item(), rel=1e-4),
    }
