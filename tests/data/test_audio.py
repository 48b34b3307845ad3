from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import Dataset

from relbias.data import Audio
from relbias.data.audio import padded
from relbias.data.features import SpecAugment


class Clips(Dataset):
    """Noise, of a length that grows with the position; the louder half of it comes first."""

    def __init__(self, number, seed, step=40):
        generator = torch.Generator().manual_seed(seed)
        self.clips = [torch.randn(600 + step * i, generator=generator) for i in range(number)]

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, position):
        return self.clips[position], position % 3


class Noise(Audio):
    def __init__(self, sizes=(7, 4, 5), names=("a", "b", "c"), **options):
        super().__init__(**{"sample_rate": 8000, "num_mels": 10, "batch_size": 4, **options})
        self.sizes, self.names = sizes, names

    def read(self):
        parts = {name: Clips(n, n) for name, n in zip(("train", "val", "test"), self.sizes, strict=True)}
        return parts, list(self.names)


def make(**options):
    data = Noise(**options)
    data.setup()
    return data


def test_a_batch_holds_each_clip_as_it_is_alone():
    data = make()
    for loader in (data.val_dataloader(), data.test_dataloader()[0], data.predict_dataloader()):
        part, place = (data.val if loader.dataset.dataset is data.val else data.test), 0
        for features, lengths, labels in loader:
            assert features.dtype == torch.float32
            assert lengths.dtype == labels.dtype == torch.int64
            assert features.shape[1] == lengths.max()
            for row, length, label in zip(features, lengths, labels, strict=True):
                waveform, expected = part[place]
                assert torch.equal(row[:length], data.features(waveform))
                assert not row[length:].any()
                assert label == expected
                place += 1
        assert place == len(part)


def test_a_fixed_length_crops_and_pads():
    data = make(num_frames=7)
    features, lengths, _ = next(iter(data.test_dataloader()[0]))
    assert features.shape == (4, 7, 10)
    assert lengths.tolist() == [6, 6, 7, 7]
    waveform, _ = data.test[3]  # 720 samples: 7 frames
    assert torch.equal(features[3], data.features(waveform))
    [features, lengths, _] = next(iter(data.test_dataloader_at(4)))
    assert features.shape == (4, 4, 10)
    middle = data.features(waveform[80 : 80 + 440])  # of 7 frames the second to the fifth
    torch.testing.assert_close(features[3], middle)


def test_training_clips_are_cut_and_augmented_anew_in_each_epoch():
    data = make(sizes=(1, 1, 1), num_frames=3)
    waveform = data.train[0][0]  # 6 frames
    places = [data.features(waveform[start * 80 :][:360]) for start in range(4)]
    loader, seen = data.train_dataloader(), []
    for epoch in range(30):
        loader.sampler.set_epoch(epoch)
        features, again = next(iter(loader))[0], next(iter(loader))[0]
        assert torch.equal(features, again)
        seen.append(next(n for n, place in enumerate(places) if torch.equal(features[0], place)))
    assert {*seen} == {0, 1, 2, 3}
    masked = make(num_frames=6, augment=SpecAugment(time_width=4, mel_width=4))
    assert any((clip == 0).all(1).any() for features, _, _ in masked.train_dataloader() for clip in features)
    assert not any((features == 0).all(1).any() for features, _, _ in masked.val_dataloader())


def test_test_lengths_are_the_last_loaders():
    data = make(num_frames=6, test_lengths=[3, 9])
    assert [next(iter(loader))[0].shape[1] for loader in data.test_dataloader()] == [6, 3, 9]
    with pytest.raises(ValueError, match="test_lengths has 6, the length of the training itself"):
        Noise(num_frames=6, test_lengths=[6])
    with pytest.raises(ValueError, match=r"test_lengths is 'ab', expected a list of lengths in frames"):
        Noise(test_lengths="ab")


def task(num_classes=3, **network):
    return SimpleNamespace(network=SimpleNamespace(**network), num_classes=num_classes)


def test_what_does_not_fit_the_task_is_refused():
    data = Noise()
    with pytest.raises(ValueError, match="the data has 10 mel bands and the network's num_mels is 40"):
        data.adapt_to(task(num_mels=40))
    data.adapt_to(task(4, num_mels=10))
    with pytest.raises(ValueError, match=r"Noise has 3 classes and num_classes is 4; give --model.init_args.num_cl"):
        data.setup()
    with pytest.raises(ValueError, match=r"Noise has other classes than expected: it adds b, c and lacks d"):
        make(classes=["a", "d"])
    with pytest.raises(ValueError, match="Noise has no clips in its part val"):
        make(sizes=(3, 0, 3))
    data = Noise()
    assert data.found == {}
    data.setup()
    assert data.found == {"classes": ["a", "b", "c"]}


@pytest.mark.parametrize(
    "options", [{"batch_size": 0}, {"num_frames": 0}, {"num_workers": -1}, {"num_mels": 0}, {"sample_rate": 0}]
)
def test_options_out_of_range_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Noise(**options)


def test_padded():
    whole, lengths = padded([torch.ones(2, 3), torch.ones(4, 3)], 5)
    assert whole.sum((1, 2)).tolist() == [6, 12]
    assert whole.shape == (2, 5, 3)
    assert lengths.tolist() == [2, 4]
