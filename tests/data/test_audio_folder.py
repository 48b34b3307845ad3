import shutil
from types import SimpleNamespace

import jsonargparse
import numpy as np
import pytest
import soundfile
import torch
from lightning.pytorch import LightningDataModule
from tests.data.files import write_clips

from relbias.data import AudioFolder
from relbias.data.waveforms import UnreadableAudioError

OPTIONS = {"sample_rate": 8000, "num_mels": 8, "batch_size": 64}


def make(root, **options):
    data = AudioFolder(str(root), **{**OPTIONS, **options})
    data.setup()
    return data


def files_of(part):
    return part.paths


@pytest.fixture(scope="session")
def birds(tmp_path_factory):
    """A folder of three classes with 10, 12 and 15 clips, to be read and not to be changed."""
    return write_clips(tmp_path_factory.mktemp("birds"), {"crow": 10, "gull": 12, "wren": 15})


@pytest.fixture
def parted(tmp_path):
    for part, number in (("train", 5), ("val", 2), ("test", 3)):
        write_clips(tmp_path / part, {"crow": number, "gull": number})
    return tmp_path


def write_csv(root, text, name="labels.csv"):
    (root / name).write_text(text, encoding="utf-8")
    return name


def test_a_folder_of_classes_is_split_and_stratified(birds):
    data = make(birds)
    parts = [files_of(part) for part in (data.train, data.val, data.test)]
    assert sorted(file for part in parts for file in part) == sorted(str(path) for path in birds.rglob("*.wav"))
    counts = [[sum(f"/{name}/" in file for file in part) for name in ("crow", "gull", "wren")] for part in parts]
    assert counts == [[8, 10, 11], [1, 1, 2], [1, 1, 2]]
    torch.manual_seed(9)
    assert files_of(make(birds).val) == parts[1]
    assert files_of(make(birds, split_seed=1).val) != parts[1]
    assert data.classes == ["crow", "gull", "wren"]
    features, lengths, labels = next(iter(data.val_dataloader()))
    assert features.shape == (4, 8, 8)
    assert (lengths == 8).all()
    assert labels.tolist() == [0, 1, 2, 2]
    assert features.mean((0, 1)).argmax() < features[-1].mean(0).argmax()  # the higher the class, the higher its tone


def test_folders_for_the_parts_are_taken_as_they_stand(parted):
    data = make(parted)
    for name in ("train", "val", "test"):
        assert files_of(getattr(data, name)) == sorted(str(path) for path in (parted / name).rglob("*.wav"))
    shutil.rmtree(parted / "test")
    data = make(parted)
    assert files_of(data.test) == files_of(data.val)
    (parted / "val" / "crow").rename(parted / "val" / "jay")
    with pytest.raises(ValueError, match=r"the training part of .* lacks the class 'jay', which another part has"):
        make(parted)
    shutil.rmtree(parted / "val")
    with pytest.raises(ValueError, match="has a folder train and none for validation; name that val"):
        make(parted)


def test_a_csv_file_tells_classes_and_parts(birds, tmp_path):
    root = shutil.copytree(birds, tmp_path / "birds")
    rows = [f"crow/{n:03}.wav,{'a' if n % 2 else 'b'}" for n in range(10)]
    data = make(root, csv_file=write_csv(root, "path,label\n" + "\n".join(rows)))
    assert data.classes == ["a", "b"]
    assert [len(part) for part in (data.train, data.val, data.test)] == [6, 2, 2]
    parts = ["train", "train", "train", "train", "val", "val", "test", "train", "train", "test"]
    rows = [f"{row},{part}" for row, part in zip(rows, parts, strict=True)]
    data = make(root, csv_file=write_csv(root, "\ufeffpath,label,part\n" + "\n".join(rows)))
    assert files_of(data.val) == [str(root / "crow" / f"00{n}.wav") for n in (4, 5)]
    assert data.val.labels == [1, 0]
    assert files_of(data.test) == [str(root / "crow" / f"00{n}.wav") for n in (6, 9)]
    rows = [row.replace("test", "train") for row in rows]
    data = make(root, csv_file=write_csv(root, "path,label,part\n" + "\n".join(rows)))
    assert files_of(data.test) == files_of(data.val)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"labels.csv needs rows with the columns path and label, found none"),
        ("file,label\na.wav,b\n", "labels.csv needs rows with the columns path and label, found file, label"),
        ("path\na.wav,b\n", "labels.csv needs rows with the columns path and label, found path"),
        ("path,label\na.wav,\n", "line 2 of .*labels.csv has path 'a.wav', label '' and part ''"),
        ("path,label\na.wav,x\nb.wav\n", "line 3 of .*labels.csv has path 'b.wav', label None"),
        ("path,label,part\na.wav,b,dev\n", "label 'b' and part 'dev'; expected a path, a label and, where there are p"),
        ("path,label\na.wav,b\n", r"has 1 classes \(b\), expected at least two"),
        ("path,label\na.wav,a\nb.wav,b\n", "class 'a' has 1 clips, and 1 for validation and 1 for the test leave none"),
        ("path,label,part\na.wav,a,train\nb.wav,b,train\n", "AudioFolder has no clips in its part val"),
    ],
)
def test_a_csv_file_that_does_not_do(text, message, tmp_path):
    name = write_csv(tmp_path, text)
    with pytest.raises(ValueError, match=message) as caught:
        make(tmp_path, csv_file=name)
    assert "\n" not in str(caught.value)


def test_a_csv_file_that_is_missing_or_no_text(tmp_path):
    with pytest.raises(ValueError, match=r"there is no file .*labels.csv; csv_file is relative to the folder"):
        make(tmp_path, csv_file="labels.csv")
    (tmp_path / "labels.csv").write_bytes(b"path,label\n\xff\xfe")
    with pytest.raises(ValueError, match=r"labels.csv is no text in UTF-8"):
        make(tmp_path, csv_file="labels.csv")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda root: shutil.rmtree(root),
            "there is no folder .*; give one that holds a folder of audio files for each",
        ),
        (lambda root: [shutil.rmtree(root / n) for n in ("crow", "gull", "wren")], "has no folder, expected"),
        (lambda root: [shutil.rmtree(root / n) for n in ("crow", "gull")], "has only the folder wren, expected"),
        (
            lambda root: [file.unlink() for file in (root / "gull").iterdir()],
            r"gull has no audio files \(.wav, .*add s",
        ),
        (lambda root: [file.unlink() for file in sorted((root / "gull").iterdir())[2:]], "class 'gull' has 2 clips"),
    ],
)
def test_a_folder_that_does_not_do(change, message, tmp_path):
    root = write_clips(tmp_path / "birds", {"crow": 4, "gull": 4, "wren": 4})
    change(root)
    with pytest.raises(ValueError, match=message) as caught:
        make(root)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_broken_file_is_named_when_it_is_read(num_workers, tmp_path):
    root = write_clips(tmp_path, {"crow": 4, "gull": 4})
    (root / "gull" / "002.wav").write_bytes(b"")
    data = make(root, num_workers=num_workers)
    loaders = [data.train_dataloader(), data.val_dataloader(), *data.test_dataloader()]
    with pytest.raises(UnreadableAudioError, match=r"^\S*gull/002.wav is empty; replace or remove it$"):
        [list(loader) for loader in loaders]


def test_broken_files_are_left_out_where_asked_for(tmp_path):
    root = write_clips(tmp_path, {"crow": 6, "gull": 6})
    (root / "gull" / "002.wav").write_bytes(b"")
    soundfile.write(root / "crow" / "001.wav", np.zeros(199), 8000)
    soundfile.write(root / "crow" / "003.wav", np.full(800, np.nan), 8000, subtype="FLOAT")
    with pytest.warns(UserWarning, match="3 files are left out: .*001.wav has 199 samples"):
        data = make(root, broken="skip")
    found = {name for part in (data.train, data.val, data.test) for name in files_of(part)}
    assert len(found) == 9
    assert not any(name.endswith(("gull/002.wav", "crow/001.wav", "crow/003.wav")) for name in found)
    for loader in (data.train_dataloader(), data.val_dataloader(), *data.test_dataloader()):
        assert all(features.isfinite().all() for features, _, _ in loader)


def test_clips_of_other_rates_and_channels_come_in_one_batch(tmp_path):
    root = write_clips(tmp_path, {"crow": 8, "gull": 8})
    for number, (rate, channels) in enumerate([(16000, 1), (44100, 2), (22050, 6), (8000, 2)]):
        time = np.arange(round(0.1 * rate)) / rate
        tone = np.stack(channels * [0.3 * np.sin(2 * np.pi * 300 * time)], axis=1)
        soundfile.write(root / "crow" / f"{number:03}.wav", tone, rate)
    data = make(root)
    clips = {path: waveform for path, (waveform, _) in zip(files_of(data.train), data.train, strict=True)}
    assert {len(waveform) for waveform in clips.values()} == {800}
    loud = [waveform[200:600].square().mean().sqrt() for path, waveform in clips.items() if "crow" in path]
    torch.testing.assert_close(torch.stack(loud), torch.full((len(loud),), 0.3 / 2**0.5), atol=0.01, rtol=0)


def test_the_options_of_all_audio_are_options_of_a_recipe(birds):
    parser = jsonargparse.ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(LightningDataModule, "data")
    given = {"root": str(birds), "broken": "skip", "num_mels": 8, "sample_rate": 8000, "num_frames": 6}
    augment = {"class_path": "relbias.data.features.SpecAugment", "init_args": {"time_width": 3}}
    config = {"class_path": "relbias.data.AudioFolder", "init_args": {**given, "augment": augment}}
    data = parser.instantiate_classes(parser.parse_object({"data": config})).data
    data.setup()
    assert next(iter(data.train_dataloader()))[0].shape == (29, 6, 8)
    config["init_args"]["num_mel"] = 8
    with pytest.raises(jsonargparse.ArgumentError, match="num_mel"):
        parser.parse_object({"data": config})


def test_classes_that_are_not_those_expected(birds):
    assert make(birds, classes=["crow", "gull", "wren"]).found == {"classes": ["crow", "gull", "wren"]}
    with pytest.raises(ValueError, match="AudioFolder has other classes than expected: it adds gull and lacks owl"):
        make(birds, classes=["crow", "owl", "wren"])
    data = AudioFolder(str(birds), **OPTIONS)
    data.adapt_to(SimpleNamespace(num_classes=5))
    with pytest.raises(ValueError, match="AudioFolder has 3 classes and num_classes is 5"):
        data.setup()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split_seed": -1}, "split_seed"),
        ({"val_share": 0.0}, r"val_share is 0.0 and test_share is 0.1, expected shares above 0, together below 1"),
        ({"broken": "drop"}, "broken is 'drop', expected one of raise, skip"),
        ({"decoder": "sox"}, "decoder is 'sox', expected one of soundfile, torchcodec"),
        ({"batch_size": 0}, "batch_size"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        AudioFolder("birds", **options)
