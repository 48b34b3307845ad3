import sys
import types

import numpy as np
import pytest
import soundfile
import torch
from torchaudio.functional import resample

from relbias.data import resampling, waveforms
from relbias.data.audio_files import AudioFiles
from relbias.data.resampling import directly, resampled
from relbias.data.waveforms import UnreadableAudioError, read_waveform


def tone(seconds=0.1, rate=8000, channels=1):
    time = np.arange(round(seconds * rate)) / rate
    return 0.5 * np.stack([np.sin(2 * np.pi * 440 * (1 + c) * time) for c in range(channels)], axis=1)


@pytest.mark.parametrize("ending", [".wav", ".flac", ".ogg", ".aiff"])
def test_files_give_their_samples(ending, tmp_path):
    samples = tone()
    soundfile.write(tmp_path / f"a{ending}", samples, 8000)
    found = read_waveform(tmp_path / f"a{ending}")
    assert found.dtype == torch.float32
    assert found.shape == (800,)
    tolerance = 0.1 if ending == ".ogg" else 1e-4  # Vorbis loses some
    torch.testing.assert_close(found, torch.tensor(samples[:, 0]).float(), atol=tolerance, rtol=0)


def test_channels_are_averaged(tmp_path):
    soundfile.write(tmp_path / "a.wav", tone(channels=2), 8000, subtype="FLOAT")
    torch.testing.assert_close(read_waveform(tmp_path / "a.wav"), torch.tensor(tone(channels=2)).mean(1).float())


@pytest.mark.parametrize("rate", [11025, 44100, 7999, 16001])
def test_any_rate_becomes_the_one_wanted(rate, tmp_path):
    samples = tone(0.5, rate)
    soundfile.write(tmp_path / "a.wav", samples, rate, subtype="FLOAT")
    found = read_waveform(tmp_path / "a.wav", 8000)
    middle = slice(400, 3600)  # the same tone, but for its ends
    torch.testing.assert_close(found[middle], torch.tensor(tone(0.5)[middle, 0]).float(), atol=5e-3, rtol=0)


@pytest.mark.parametrize(("rate", "new_rate"), [(8000, 16000), (16000, 8000), (11025, 8000), (441, 160), (7, 300)])
@pytest.mark.parametrize("samples", [1, 2, 999])
def test_resampling_sample_by_sample_is_torchaudios(rate, new_rate, samples, monkeypatch):
    waveform = torch.randn(samples, dtype=torch.float64)
    monkeypatch.setattr(resampling, "_AT_ONCE", 64)
    expected = resample(waveform, rate, new_rate)
    torch.testing.assert_close(directly(waveform, rate, new_rate), expected)
    torch.testing.assert_close(resampled(waveform.float(), rate, new_rate), expected.float(), atol=1e-4, rtol=0)


def spoilt(value):
    def write(path):
        samples = tone()
        samples[17] = value
        soundfile.write(path, samples, 8000, subtype="FLOAT")

    return write


BROKEN = {
    "missing": (lambda path: None, r"^there is no file .*a.wav$"),
    "empty": (lambda path: path.write_bytes(b""), r"a.wav is empty; replace or remove it$"),
    "no audio": (
        lambda path: path.write_bytes(b"no audio at all"),
        r"a.wav cannot be read as audio: .*; replace or rem",
    ),
    "no samples": (lambda path: soundfile.write(path, np.zeros(0), 8000), r"a.wav has no samples; replace or remove"),
    "huge": (spoilt(-1e30), r"^sample 17 of .*a.wav is NaN, infinite or above 2\^32; replace or remove it$"),
    "infinite": (spoilt(np.inf), r"^sample 17 of .*a.wav is NaN, infinite or above 2\^32; replace or remove it$"),
    "nan": (spoilt(np.nan), r"^sample 17 of .*a.wav is NaN, infinite or above 2\^32; replace or remove it$"),
    "a folder": (lambda path: path.mkdir(), r"^there is no file .*a.wav$"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_is_named(kind, tmp_path):
    spoil, message = BROKEN[kind]
    spoil(tmp_path / "a.wav")
    with pytest.raises(UnreadableAudioError, match=message) as caught:
        read_waveform(tmp_path / "a.wav")
    assert "\n" not in str(caught.value)


def test_broken_files_are_left_out_and_named(tmp_path):
    for number, (spoil, _) in enumerate(BROKEN.values()):
        spoil(tmp_path / f"{number}.wav")
    soundfile.write(tmp_path / "short.wav", tone(0.01), 8000)
    soundfile.write(tmp_path / "good.wav", tone(), 8000)
    paths = sorted(tmp_path.glob("*.wav"))
    files = AudioFiles(paths, [path.stem for path in paths], 8000, min_samples=200)
    with pytest.warns(UserWarning, match=r"^8 files are left out: .*1.wav is empty; .* and 5 more$"):
        kept = files.checked("skip")
    assert kept.labels == ["good"]
    assert len(kept[0][0]) == 800
    assert files.checked("raise") is files
    with pytest.raises(
        UnreadableAudioError, match=r"short.wav has 80 samples at a rate of 8000, expected at least 200, a"
    ):
        files[files.labels.index("short")]
    with pytest.raises(ValueError, match="broken is 'drop', expected one of raise, skip"):
        files.checked("drop")


def test_rates_and_decoders_out_of_range(tmp_path):
    with pytest.raises(ValueError, match="sample_rate"):
        read_waveform(tmp_path / "a.wav", 0)
    with pytest.raises(ValueError, match="decoder is 'sox', expected one of soundfile, torchcodec"):
        read_waveform(tmp_path / "a.wav", decoder="sox")


@pytest.fixture
def codec(monkeypatch):
    """A torchcodec whose decoder a test gives; the package itself needs FFmpeg's libraries."""

    def install(decoder):
        package, module = types.ModuleType("torchcodec"), types.ModuleType("torchcodec.decoders")
        module.AudioDecoder = decoder
        monkeypatch.setitem(sys.modules, "torchcodec", package)
        monkeypatch.setitem(sys.modules, "torchcodec.decoders", module)

    waveforms.check_decoder.cache_clear()
    yield install
    waveforms.check_decoder.cache_clear()


def test_a_torchcodec_that_imports_and_does_not_decode_is_refused_before_a_file_is_read(codec, tmp_path):
    def decoder(source):
        raise RuntimeError("Could not load libtorchcodec.\nLikely causes: ...")

    codec(decoder)
    with pytest.raises(
        ValueError,
        match=r"torchcodec does not decode here \(Could not load libtorchcodec.\); install torchcodec and FFm",
    ):
        AudioFiles([tmp_path / "a.mp4"], [0], 8000, decoder="torchcodec")


def test_what_torchcodec_decodes_is_treated_alike(codec, tmp_path):
    class Decoder:
        def __init__(self, source):
            if str(source).endswith("b.mp4"):
                raise RuntimeError("no audio stream")

        def get_all_samples(self):
            return types.SimpleNamespace(data=torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]]), sample_rate=8000)

    codec(Decoder)
    assert read_waveform(tmp_path / "a.mp4", decoder="torchcodec").tolist() == [0.5, 0.0, 1.0]
    (tmp_path / "b.mp4").write_bytes(b"x")
    with pytest.raises(UnreadableAudioError, match=r"b.mp4 cannot be read as audio: no audio stream; replace"):
        read_waveform(tmp_path / "b.mp4", decoder="torchcodec")
