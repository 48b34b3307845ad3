import numpy as np
import pytest
import torch

from relbias.data import Tones
from relbias.data.tones import MELODIES, MELODY, RHYTHMS, TONE


def make(**options):
    data = Tones(**{"num_train": 24, "num_test": 16, **options})
    data.setup()
    return data


def test_every_class_has_the_same_tones_and_pauses():
    assert {tuple(sorted(melody)) for melody in MELODIES.values()} == {(0, 1, 2, 3, 4, 5)}
    assert {tuple(sorted(pauses)) for pauses in RHYTHMS.values()} == {(6, 9, 12, 15, 18)}
    assert len({*MELODIES.values()}) == 4


def test_batches():
    data = make(test_lengths=[192])
    features, lengths, labels = next(iter(data.val_dataloader()))
    assert features.shape == (16, 128, 32)
    assert (lengths == 128).all()
    assert labels.tolist() == 2 * [*range(8)]
    assert data.classes[3] == "falling quickening"
    own, longer = data.test_dataloader()
    assert next(iter(own))[0].shape == (16, 128, 32)
    assert next(iter(longer))[0].shape == (16, 192, 32)
    assert next(iter(data.test_dataloader_at(90)))[0].shape == (16, 90, 32)


def test_clips_depend_on_their_part_and_number_alone():
    torch.manual_seed(0)
    first = make()
    torch.manual_seed(1)
    again = make(num_train=8)
    assert torch.equal(first.train[5][0], again.train[5][0])
    assert not torch.equal(first.train[5][0], first.test[5][0])
    assert not torch.equal(first.val[5][0], first.test[5][0])


def loud(waveform, hop):
    """The frames that hold a tone, by their energy."""
    energy = waveform.double()[: len(waveform) // hop * hop].view(-1, hop).square().mean(1)
    return (energy > (energy.max() * energy.min()).sqrt()).numpy()


@pytest.mark.parametrize("label", range(8))
def test_a_clip_is_its_melody_in_its_rhythm(label):
    data = make()
    waveform, found = data.train[8 + label]
    assert found == label
    hop, is_loud = data.logmel.hop, loud(waveform, data.logmel.hop)
    edges = np.flatnonzero(np.diff(np.concatenate(([0], is_loud.astype(int), [0]))))
    starts, ends = edges[::2], edges[1::2]
    assert (ends - starts).tolist() == 6 * [TONE]
    assert ends[-1] - starts[0] == MELODY
    assert tuple((starts[1:] - ends[:-1]).tolist()) == [*RHYTHMS.values()][label % 2]
    pitches = []
    for start in starts:
        sound = waveform[start * hop : (start + TONE) * hop].numpy()
        pitches.append(np.abs(np.fft.rfft(sound, 8192)).argmax())
    assert tuple(np.argsort(np.argsort(pitches)).tolist()) == [*MELODIES.values()][label // 2]


def test_no_patch_of_four_frames_holds_two_tones():
    data = make()
    for number in range(8):
        waveform, _ = data.train[number]
        starts = np.flatnonzero(np.diff(loud(waveform, data.logmel.hop).astype(int), prepend=0) == 1)
        assert (np.diff(starts) - TONE).min() * data.logmel.hop > data.logmel.num_samples(4)


def test_melodies_begin_anywhere():
    data = make(num_train=400)
    starts = [int(loud(data.train[number][0], data.logmel.hop).argmax()) for number in range(400)]
    assert min(starts) == 0
    assert max(starts) == 128 - MELODY


@pytest.mark.parametrize("options", [{"num_frames": 89}, {"test_lengths": [50]}, {"num_train": 0}, {"num_test": 0}])
def test_options_out_of_range_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Tones(**options)
    with pytest.raises(ValueError, match="length"):
        make().test_dataloader_at(89)
