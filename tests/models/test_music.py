"""The music transformer: its relations against loops, its causality, and the baseline's probabilities."""

from __future__ import annotations

import math

import pytest
import torch

from relbias.encodings import T5, EncodingSum, Table
from relbias.models import HoldAndBigram, MusicTransformer
from relbias.models.music_relations import Notes, music_indices, music_relations
from relbias.relations import Labels, Sequence

SMALL = {"num_tokens": 130, "dim": 16, "depth": 2, "num_heads": 2}
ALL = {
    "offset": "t5",
    "time": "rope",
    "bar": "alibi",
    "voice": "table",
    "phase": "table",
    "time_by_voice": "table",
    "interval": "table",
}


def make(encoding, seed=0, **options):
    torch.manual_seed(seed)
    model = MusicTransformer(encoding, **{**SMALL, **options}).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model


def notes_by_loop(tokens, voices, steps_per_bar):
    """For each place n what the query and the key know: (step, bar, voice, phase, pitch), of a row of tokens."""
    found = []
    for n in range(len(tokens)):
        facts = []
        for place in (n, n - 1):
            step, voice = divmod(place, voices)
            facts.append([step, step // steps_per_bar, voice, step % steps_per_bar])
        left = tokens[n - voices + 1] if n >= voices - 1 else 129
        facts[0].append(left if left < 128 else None)
        facts[1].append(tokens[n] if tokens[n] < 128 else None)
        found.append(facts)
    return found


@pytest.mark.parametrize(("voices", "steps_per_bar"), [(4, 16), (3, 2), (1, 4)])
def test_every_relation_by_a_loop(voices, steps_per_bar):
    torch.manual_seed(0)
    tokens = torch.randint(50, 90, (2, 13))
    tokens[0, :2], tokens[1, 5] = torch.tensor([129, 128]), 128
    relations = music_relations(voices, steps_per_bar, max_steps=2, max_interval=12)
    index = music_indices(relations, Notes(tokens, voices, steps_per_bar))
    assert index.keys() == relations.keys() - {"offset"}
    for row in range(2):
        facts = notes_by_loop(tokens[row].tolist(), voices, steps_per_bar)
        for i, (query, _) in enumerate(facts):
            for j, (_, key) in enumerate(facts[: i + 1]):
                time = max(-2, min(2, key[0] - query[0])) + 2
                known = query[4] is not None and key[4] is not None
                interval = max(-12, min(12, key[4] - query[4])) + 12 if known else 0
                expected = {
                    "time": key[0] - query[0],
                    "bar": key[1] - query[1],
                    "voice": voices * query[2] + key[2],
                    "phase": steps_per_bar * query[3] + key[3],
                    "time_by_voice": (time * voices + query[2]) * voices + key[2],
                    "interval": interval,
                }
                for name, each in index.items():
                    values = each.differences() if name in ("time", "bar") else each.codes()
                    assert values[row if len(values) > 1 else 0, 0, i, j] == expected[name], (name, row, i, j)


@pytest.mark.parametrize("encoding", ["none", "t5", "sinusoidal", ALL])
def test_a_note_depends_on_those_before_it_alone(encoding):
    model = make(encoding)
    tokens = torch.randint(128, (2, 24))
    changed = tokens.clone()
    changed[:, 9:] = torch.randint(128, (2, 15))
    with torch.no_grad():
        first, second = model(tokens), model(changed)
    torch.testing.assert_close(first[:, :9], second[:, :9])
    assert not first[:, 9].isclose(second[:, 9]).all()
    with torch.no_grad():
        torch.testing.assert_close(model(tokens[:, :9]), first[:, :9])
        torch.testing.assert_close(model(tokens[1:]), first[1:])


@pytest.mark.parametrize("key", [key for key in ALL if key != "offset"])
def test_every_relation_matters(key):
    model = make({key: ALL[key]}, metre=False)
    without = make("none", metre=False)
    without.load_state_dict({k: v for k, v in model.state_dict().items() if "encoding" not in k}, strict=False)
    tokens = torch.randint(40, 90, (1, 3 * 64))
    with torch.no_grad():
        difference = (model(tokens) - without(tokens)).abs().amax((0, 2))
    assert difference[1:4].max() + difference[70:].max() > 1e-3


def test_metre_knows_the_voice_and_the_place_in_the_bar_of_the_next_note():
    model = make("none", voices=2, steps_per_bar=3)
    tokens = torch.full((1, 14), 60)
    with torch.no_grad():
        model.blocks, model.norm = torch.nn.ModuleList(), torch.nn.Identity()
        model.blocks.append(_Same())
        out = model(tokens)[0]
    torch.testing.assert_close(out[6:12], out[:6])
    assert (out[1:6] - out[0]).abs().amax(1).min() > 1e-3


class _Same(torch.nn.Module):
    """In the place of a block."""

    def __init__(self):
        super().__init__()
        self.attention = torch.nn.Module()
        self.attention.encoding = torch.nn.Module()
        self.attention.encoding.relation = Sequence()

    def forward(self, x, **_):
        return x


def test_a_built_encoding_is_shared_and_checked():
    built = EncodingSum({"time": T5(2, 8), "voice": Table(2, 8, Labels(4))})
    model = MusicTransformer(built, **SMALL)
    assert model.blocks[0].attention.encoding is built is model.blocks[1].attention.encoding
    assert model(torch.zeros(1, 64, dtype=torch.int64)).shape == (1, 64, 130)
    with pytest.raises(ValueError, match="is over some of offset: Sequence"):
        MusicTransformer(EncodingSum({"tree": Table(2, 8, Labels(4))}), **SMALL)
    with pytest.raises(ValueError, match="got voice: Sequence"):
        MusicTransformer(EncodingSum({"voice": T5(2, 8)}), **SMALL)


def test_reset_parameters_starts_anew():
    model = make(ALL)
    torch.manual_seed(3)
    model.reset_parameters()
    assert all(parameter.abs().max() < 2 for parameter in model.parameters())
    assert 0.05 < model.metre.weight.std() < 0.11  # 0.02 sqrt(dim) is 0.08


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: MusicTransformer({"tme": "t5"}, **SMALL), "no relation of notes 'tme'; did you mean 'time'"),
        (lambda: MusicTransformer({"time": "sinusoidal"}, **SMALL), "'sinusoidal' is applied at the input"),
        (lambda: MusicTransformer({"time": "table"}, **SMALL), "a limited number of codes"),
        (lambda: MusicTransformer("t5", voices=0, **SMALL), "voices must be an integer of at least 1, got 0"),
        (lambda: MusicTransformer("t5", steps_per_bar=0, **SMALL), "steps_per_bar must be an integer of at least 1"),
        (lambda: MusicTransformer("t5", **SMALL)(torch.tensor([[130]])), "tokens must be from 0 to 129, got 130"),
        (lambda: HoldAndBigram("t5"), "HoldAndBigram has no attention"),
        (lambda: HoldAndBigram(steps_per_beat=0), "steps_per_beat must be an integer of at least 1"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_baseline_by_a_loop():
    torch.manual_seed(0)
    network = HoldAndBigram(num_tokens=6, voices=2, steps_per_beat=3).double().requires_grad_(False)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter)
    tokens = torch.tensor([[5, 1, 2, 1, 4, 4, 3, 0]])
    out = network(tokens)
    for n in range(8):
        voice, phase = n % 2, n // 2 % 3
        known = n >= 1
        left = int(tokens[0, n - 1]) if known else 6
        row = network.following[voice, left]
        hold = 1 / (1 + math.exp(-float(network.hold[voice, phase])))
        others = sum(math.exp(float(row[b])) for b in range(6) if b != left)
        for b in range(6):
            share = math.exp(float(row[b])) / others
            expected = share if not known else hold if b == left else (1 - hold) * share
            assert float(out[0, n, b]) == pytest.approx(math.log(expected))


def test_the_baseline_learns_from_finite_gradients():
    network = HoldAndBigram(num_tokens=6, voices=2)
    loss = torch.nn.functional.cross_entropy(network(torch.randint(6, (2, 9))).flatten(0, 1), torch.randint(6, (18,)))
    loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters())
    assert all(parameter.grad.abs().max() > 0 for parameter in network.parameters())
