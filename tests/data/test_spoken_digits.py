"""Recordings of spoken digits: their parts, one in a clip, and strings of them."""

import shutil

import numpy as np
import pytest
import soundfile
import torch

from relbias.data import DigitStrings, SpokenDigits
from relbias.data.digit_recordings import find_recordings, split_recordings
from relbias.data.features import normalized
from relbias.data.waveforms import UnreadableAudioError, read_waveform

RATE = 8000
SPEAKERS = ("ann", "bob_2")
TAKES = 9
DIGITS = (0, 4, 7)


def samples_of(digit, speaker, take):
    """A tone of its own for each recording, of a length of its own."""
    length = 400 + 40 * digit + 8 * take + SPEAKERS.index(speaker)
    frequency = 0.2 + 0.05 * digit + 0.003 * take + 0.001 * SPEAKERS.index(speaker)
    return 0.5 * np.cos(np.arange(length) * frequency).astype(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("recordings")
    for digit in DIGITS:
        for speaker in SPEAKERS:
            for take in range(TAKES):
                waveform = samples_of(digit, speaker, take)
                soundfile.write(path / f"{digit}_{speaker}_{take}.wav", waveform, RATE, subtype="FLOAT")
    (path / "README.md").write_text("not audio")
    return path


def names(part):
    return {(recording.digit, recording.speaker, recording.take) for recording in part}


def product(speakers, takes):
    return {(digit, speaker, take) for digit in DIGITS for speaker in speakers for take in takes}


def test_parts_are_by_take_or_by_speaker(folder):
    recordings = find_recordings(folder)
    assert len(recordings) == 54
    parts = split_recordings(recordings)
    assert names(parts["test"]) == product(SPEAKERS, range(5))
    assert names(parts["val"]) == product(SPEAKERS, (5, 6))
    assert names(parts["train"]) == product(SPEAKERS, (7, 8))
    parts = split_recordings(recordings, "bob_2")
    assert names(parts["test"]) == product(["bob_2"], range(9))
    assert names(parts["val"]) == product(["ann"], (5, 6))
    assert names(parts["train"]) == product(["ann"], (0, 1, 2, 3, 4, 7, 8))


def test_single_digits_are_clips_with_their_place_among_the_digits(folder):
    data = SpokenDigits(folder, batch_size=30)
    data.setup()
    assert data.classes == ["0", "4", "7"]
    [(features, lengths, labels)] = list(data.test_dataloader()[0])
    place = 0
    for speaker in SPEAKERS:
        for label, digit in enumerate(DIGITS):
            for take in range(5):
                expected = normalized(data.logmel(torch.from_numpy(samples_of(digit, speaker, take))))
                assert torch.equal(features[place, : lengths[place]], expected)
                assert labels[place] == label
                place += 1
    assert place == len(labels)
    held = SpokenDigits(folder, held_out_speaker="ann")
    held.setup()
    assert (len(held.train), len(held.val), len(held.test)) == (21, 6, 27)


def recordings_in(waveform, voices):
    """Which recordings stand between the zeros of a string: (digit, speaker, take) in their order."""
    found, place = [], 0
    while place < len(waveform):
        if waveform[place] == 0:
            place += 1
            continue
        (name,) = [name for name, clip in voices.items() if torch.equal(waveform[place:][: len(clip)], clip)]
        found.append(name)
        place += len(voices[name])
    return found


@pytest.fixture
def spied(folder, monkeypatch):
    """A data module that notes the waveforms of its strings, with silence as pauses."""
    monkeypatch.setattr("relbias.data.digit_strings._NOISE", 0.0)
    data, seen = DigitStrings(folder, length=3, test_lengths=[5], pause=(0.01, 0.03), batch_size=4, num_test=30), []
    data.setup()
    inner = data.logmel.forward
    monkeypatch.setattr(data.logmel, "forward", lambda waveform: seen.append(waveform) or inner(waveform))
    return data, seen


def test_strings_are_of_one_speaker_and_of_the_recordings_of_their_part(spied):
    data, seen = spied
    voices = {
        (digit, speaker, take): torch.from_numpy(samples_of(digit, speaker, take))
        for digit, speaker, take in product(SPEAKERS, range(TAKES))
    }
    expected = {"train": {7, 8}, "val": {5, 6}, "test": set(range(5))}
    for part, takes in expected.items():
        used, pauses = set(), []
        for number in range(30):
            seen.clear()
            features, labels = data.string(part, 3, np.random.default_rng([number]))
            (waveform,) = seen
            names = recordings_in(waveform, voices)
            assert [digit for digit, _, _ in names] == labels
            assert len({speaker for _, speaker, _ in names}) == 1
            assert torch.equal(features, normalized(data.logmel(waveform)))
            used |= set(names)
            pauses.append(len(waveform) - sum(len(voices[name]) for name in names))
        assert {take for _, _, take in used} == takes
        assert {speaker for _, speaker, _ in used} == set(SPEAKERS)
        assert {digit for digit, _, _ in used} == set(DIGITS)
        assert 4 * 80 <= min(pauses) < max(pauses) <= 4 * 240  # a pause before, between and after three digits
        assert len(set(pauses)) > 20


def test_training_strings_have_all_lengths_one_for_a_batch_and_are_drawn_anew(folder):
    torch.manual_seed(0)
    data = DigitStrings(folder, length=3, batch_size=6, batches_per_epoch=90)
    data.setup()
    loader = data.train_dataloader()
    batches = list(loader)
    assert len(batches) == 90
    assert all(len(batch[3].unique()) == 1 for batch in batches)
    numbers = torch.cat([batch[3][:1] for batch in batches]).bincount(minlength=4)
    assert numbers[0] == 0
    assert len(numbers) == 4
    assert numbers[1:].min() > 12  # of 30 expected; four standard deviations are 18
    for features, lengths, targets, target_lengths in batches:
        assert features.shape == (6, lengths.max(), 40)
        assert targets.shape == (6, target_lengths.max())
        for row, length, labels, number in zip(features, lengths, targets, target_lengths, strict=True):
            assert not row[length:].any()
            assert row[length - 1].any()
            assert (labels[:number] >= 0).all()
            assert (labels[number:] == -1).all()
    again = list(loader)
    assert all(torch.equal(one[0], other[0]) for one, other in zip(batches, again, strict=True))
    loader.sampler.set_epoch(1)
    assert not any(torch.equal(one[0], other[0]) for one, other in zip(batches, loader, strict=True))


def test_each_loader_draws_from_the_recordings_of_its_part(folder, monkeypatch):
    data = DigitStrings(folder, length=2, test_lengths=[3], batch_size=2, batches_per_epoch=2, num_test=4)
    data.setup()
    drawn, string = [], data.string
    monkeypatch.setattr(data, "string", lambda part, *rest: drawn.append(part) or string(part, *rest))
    loaders = {"train": [data.train_dataloader()], "val": [data.val_dataloader()]}
    loaders["test"] = [*data.test_dataloader(), data.predict_dataloader()]
    for part, each in loaders.items():
        drawn.clear()
        assert all(len(list(loader)) for loader in each)
        assert {*drawn} == {part}


def test_the_test_is_always_the_same_at_every_length(folder):
    rows = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        data = DigitStrings(folder, length=3, test_lengths=[5], batch_size=4, num_test=30)
        data.setup()
        data.setup("test")
        own, longer = (list(loader) for loader in data.test_dataloader())
        assert [len(batch[0]) for batch in own] == [4, 4, 2]
        assert [len(batch[0]) for batch in longer] == [4, 2]
        assert data.size_of(longer[0]) == 5
        assert {int(number) for batch in own for number in batch[3]} == {3}
        rows.append([batch[2].tolist() for batch in own + longer])
        val = list(data.val_dataloader())
        assert sum(len(batch[0]) for batch in val) == 5
        assert torch.equal(next(iter(data.predict_dataloader()))[0], own[0][0])
    assert rows[0] == rows[1]
    assert len({str(row) for batch in rows[0] for row in batch}) > 10


def test_a_clip_shorter_than_a_window_is_filled_up(tmp_path):
    for take in range(9):
        soundfile.write(tmp_path / f"1_ann_{take}.wav", np.full(50, 0.1), RATE)
    data = DigitStrings(tmp_path, length=1, pause=(0.0, 0.0))
    data.setup()
    features, labels = data.string("test", 1, np.random.default_rng(0))
    assert features.shape == (1, 40)
    assert features.isfinite().all()
    assert labels == [1]


def test_folders_that_do_not_fit_are_refused(folder, tmp_path):
    with pytest.raises(ValueError, match=r"there is no folder .*nowhere"):
        DigitStrings(tmp_path / "nowhere").setup()
    with pytest.raises(ValueError, match=r"has no WAV files; give a folder with files such as 7_jackson_32\.wav"):
        SpokenDigits(tmp_path).setup()
    shutil.copy(folder / "4_ann_0.wav", tmp_path / "4_ann_0.wav")
    with pytest.raises(ValueError, match="there are no recordings for train"):
        DigitStrings(tmp_path).setup()
    shutil.copy(folder / "4_ann_0.wav", tmp_path / "four.wav")
    with pytest.raises(ValueError, match=r"four\.wav is not named DIGIT_SPEAKER_TAKE\.wav"):
        SpokenDigits(tmp_path).setup()
    with pytest.raises(ValueError, match="there is no speaker eve; there are ann, bob_2"):
        SpokenDigits(folder, held_out_speaker="eve").setup()


def test_a_broken_recording_is_named(folder, tmp_path):
    path = tmp_path / "copy"
    shutil.copytree(folder, path)
    (path / "4_ann_8.wav").write_bytes(b"")
    with pytest.raises(UnreadableAudioError, match=r"4_ann_8\.wav is empty"):
        DigitStrings(path).setup()
    data = SpokenDigits(path, broken="skip")
    with pytest.warns(UserWarning, match=r"4_ann_8\.wav is empty"):
        data.setup()
    assert len(data.train) == 11
    assert read_waveform(path / "4_ann_7.wav").shape == (616,)


class Task:
    class network:
        num_mels = 80


def test_a_network_with_other_mel_bands_is_refused(folder):
    with pytest.raises(ValueError, match="the data has 40 mel bands and the network's num_mels is 80"):
        DigitStrings(folder).adapt_to(Task())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 0}, "length must be"),
        ({"batches_per_epoch": 0}, "batches_per_epoch must be"),
        ({"num_test": 0}, "num_test must be"),
        ({"pause": (0.3, 0.1)}, r"pause is \(0.3, 0.1\), expected \(shortest, longest\)"),
        ({"test_lengths": [8, 2]}, "expected lengths that increase"),
        ({"test_lengths": [4]}, "the length of the training itself"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DigitStrings("recordings", **options)
