import numpy as np
import pytest
import torch
from torchaudio.compliance.kaldi import fbank

from relbias.data.features import LogMel, SpecAugment, normalized


def by_loops(waveform, logmel, rate):
    """The formula: Hann windows, power spectrum, triangles on the mel scale."""
    size, window, hop = logmel.size, logmel.window, logmel.hop
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    mels = np.linspace(0, 2595 * np.log10(1 + (rate // 2) / 700), logmel.num_mels + 2)
    edges = 700 * (10 ** (mels / 2595) - 1)
    hertz = np.linspace(0, rate // 2, size // 2 + 1)
    frames = []
    for start in range(0, len(waveform) - window + 1, hop):
        energy = np.abs(np.fft.rfft(waveform[start : start + window] * hann, size)) ** 2
        bands = []
        for low, middle, high in zip(edges, edges[1:], edges[2:], strict=False):
            triangle = np.minimum((hertz - low) / (middle - low), (high - hertz) / (high - middle)).clip(0)
            bands.append(np.log(1e-6 + triangle @ energy))
        frames.append(bands)
    return np.array(frames)


@pytest.mark.parametrize(("rate", "num_mels", "samples"), [(8000, 40, 1000), (16000, 128, 1234), (11025, 23, 276)])
def test_against_plain_loops(rate, num_mels, samples):
    logmel = LogMel(rate, num_mels).double()
    waveform = np.random.default_rng(0).normal(size=samples)
    expected = by_loops(waveform, logmel, rate)
    found = logmel(torch.tensor(waveform))
    assert found.shape == (logmel.num_frames(samples), num_mels)
    torch.testing.assert_close(found, torch.tensor(expected), atol=2e-4, rtol=0)  # torchaudio's triangles are float32


def test_against_kaldi():
    """Equal to Kaldi's where its scale, its window and its frames are the same, but for the floor."""
    waveform = torch.from_numpy(np.random.default_rng(0).normal(size=4000)).float()
    options = {"window_type": "hanning", "preemphasis_coefficient": 0.0, "remove_dc_offset": False, "low_freq": 0.0}
    expected = fbank(waveform[None], num_mel_bins=40, sample_frequency=16000, **options)
    found = LogMel(16000, 40)(waveform)
    assert found.shape == expected.shape
    # Kaldi's triangles are straight in mel, not in hertz, and its window is symmetric.
    assert (found - expected).abs().median() < 0.1


@pytest.mark.parametrize(("rate", "num_mels"), [(8000, 80), (16000, 256), (44100, 128), (300, 5)])
def test_no_band_is_empty(rate, num_mels, recwarn):
    filters = LogMel(rate, num_mels).mel.mel_scale.fb
    assert (filters.max(0).values > 0).all()
    assert not recwarn


def test_a_part_of_a_clip_gives_frames_of_the_whole():
    logmel, waveform = LogMel(8000, 20), torch.randn(3000)
    whole = logmel(waveform)
    part = logmel(waveform[5 * logmel.hop :][: logmel.num_samples(7)])
    torch.testing.assert_close(part, whole[5:12])
    assert [logmel.num_frames(samples) for samples in (199, 200, 279, 280)] == [0, 1, 1, 2]


def test_what_logmel_refuses():
    with pytest.raises(ValueError, match="199 samples are shorter than a window of 200"):
        LogMel(8000, 40)(torch.zeros(199))
    with pytest.raises(ValueError, match="num_mels is 90000, too many bands for a sample_rate of 8000"):
        LogMel(8000, 90000)
    for value in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"window_ms is .*, expected at least a sample at a sample_rate of 8000"):
            LogMel(8000, 40, window_ms=value)
    with pytest.raises(ValueError, match="hop_ms is"):
        LogMel(8000, 40, hop_ms=0.01)


def test_normalized():
    features = normalized(torch.randn(50, 8) * 3 + 5)
    assert features.mean().abs() < 1e-6
    assert features.square().mean().sqrt() == pytest.approx(1, abs=1e-4)
    assert normalized(torch.full((50, 8), -13.8)).abs().max() < 1e-3


def test_spec_augment_masks_spans_below_their_bounds():
    torch.manual_seed(0)
    augment, given = SpecAugment(time_masks=1, time_width=10, mel_masks=1, mel_width=5), torch.ones(60, 30)
    widths = []
    for _ in range(200):
        masked = augment(given) == 0
        frames, bands = masked.all(1), masked.all(0)
        assert torch.equal(masked, frames[:, None] | bands)
        for line in (frames, bands):
            places = line.nonzero().flatten()
            assert len(places) == 0 or int(places[-1] - places[0]) == len(places) - 1
        widths.append((int(frames.sum()), int(bands.sum())))
    assert [max(column) for column in zip(*widths, strict=True)] == [9, 4]
    assert [min(column) for column in zip(*widths, strict=True)] == [0, 0]
    assert (given == 1).all()
    assert (SpecAugment(time_width=100, mel_masks=0, time_share=0.2)(given)[:, 0] == 0).sum() <= 2 * 11
    assert torch.equal(SpecAugment(time_masks=0, mel_masks=0)(given), given)


@pytest.mark.parametrize("options", [{"time_masks": -1}, {"mel_width": -1}, {"time_share": 0.0}, {"time_share": 1.5}])
def test_spec_augment_out_of_range(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        SpecAugment(**options)
