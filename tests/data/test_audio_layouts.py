import shutil

import pytest
import torch
from tests.data.files import write_clips

from relbias.data import ESC50, SpeechCommands, speech_commands

OPTIONS = {"sample_rate": 8000, "num_mels": 8}


def names(part):
    return ["/".join(path.split("/")[-2:]) for path in part.paths]


@pytest.fixture
def words(tmp_path):
    root = write_clips(tmp_path / "words", {"yes": 4, "no": 4, "_background_noise_": 2})
    (root / "validation_list.txt").write_text("yes/001.wav\nno/003.wav\n")
    (root / "testing_list.txt").write_text("no/000.wav\nyes/000.wav\n")
    return root


def test_speech_commands_has_its_official_split(words):
    data = SpeechCommands(str(words), **OPTIONS)
    data.prepare_data()
    data.setup()
    assert names(data.train) == ["no/001.wav", "no/002.wav", "yes/002.wav", "yes/003.wav"]
    assert names(data.val) == ["yes/001.wav", "no/003.wav"]
    assert names(data.test) == ["no/000.wav", "yes/000.wav"]
    assert data.classes == ["no", "yes"]
    assert next(iter(data.test_dataloader()[0]))[2].tolist() == [0, 1]


def test_speech_commands_lies_where_torchaudio_puts_it(words, monkeypatch, tmp_path):
    root, asked = tmp_path / "data", []

    def fetch(folder, download):
        asked.append((folder, download))
        shutil.copytree(words, root / "SpeechCommands" / "speech_commands_v0.02")

    monkeypatch.setattr(speech_commands, "SPEECHCOMMANDS", fetch)
    with pytest.raises(
        ValueError, match=r"data does not hold Speech Commands \(validation_list.txt and .*=True fetches"
    ):
        SpeechCommands(str(root), **OPTIONS).prepare_data()
    data = SpeechCommands(str(root), download=True, **OPTIONS)
    data.prepare_data()
    data.prepare_data()
    data.setup()
    assert asked == [(str(root), True)]
    assert len(data.train) == 4


def test_speech_commands_that_cannot_be_fetched(monkeypatch, tmp_path):
    def fetch(folder, download):
        raise OSError("no network\nat all")

    monkeypatch.setattr(speech_commands, "SPEECHCOMMANDS", fetch)
    with pytest.raises(
        ValueError, match=r"cannot be fetched: no network at all; unpack speech_commands_v0.02.tar.gz in"
    ):
        SpeechCommands(str(tmp_path), download=True, **OPTIONS).prepare_data()


def test_a_list_with_a_file_that_is_missing(words):
    (words / "yes" / "000.wav").unlink()
    with pytest.raises(ValueError, match=r"testing_list.txt names yes/000.wav, which is not there; unpack the archive"):
        SpeechCommands(str(words), **OPTIONS).setup()


@pytest.fixture
def sounds(tmp_path):
    root = tmp_path / "ESC-50"
    write_clips(root, {"audio": 10})
    lines = [f"{n:03}.wav,{n % 5 + 1},{n % 2},{'rain' if n % 2 else 'dog'},True" for n in range(10)]
    (root / "meta").mkdir()
    (root / "meta" / "esc50.csv").write_text("filename,fold,target,category,esc10\n" + "\n".join(lines))
    return root


@pytest.mark.parametrize(("fold", "val"), [(1, 2), (4, 5), (5, 1)])
def test_esc50_has_its_folds(fold, val, sounds):
    data = ESC50(str(sounds), fold=fold, **OPTIONS)
    data.setup()
    assert names(data.test) == [f"audio/00{n}.wav" for n in range(10) if n % 5 + 1 == fold]
    assert names(data.val) == [f"audio/00{n}.wav" for n in range(10) if n % 5 + 1 == val]
    assert len(data.train) == 6
    assert data.classes == ["dog", "rain"]
    assert data.test.labels == [(fold - 1) % 2, fold % 2]


def test_the_seed_of_the_training_may_be_the_fold(sounds):
    for seed in (0, 2, 6):
        torch.manual_seed(seed)
        data = ESC50(str(sounds), **OPTIONS)
        data.setup()
        assert names(data.test)[0] == f"audio/00{seed % 5}.wav"


def test_an_esc50_that_does_not_do(sounds):
    with pytest.raises(ValueError, match="fold is 6, expected 1 to 5"):
        ESC50(str(sounds), fold=6)
    with pytest.raises(ValueError, match="fold"):
        ESC50(str(sounds), fold=0)
    (sounds / "meta" / "esc50.csv").write_text("filename,fold,target\n000.wav,1,0\n")
    with pytest.raises(ValueError, match=r"esc50.csv has no column 'category', expected filename, fold and category"):
        ESC50(str(sounds), **OPTIONS).setup()
    (sounds / "meta" / "esc50.csv").unlink()
    with pytest.raises(ValueError, match=r"there is no file .*meta/esc50.csv; unpack https"):
        ESC50(str(sounds), **OPTIONS).setup()
