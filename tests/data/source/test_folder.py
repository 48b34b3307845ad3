import json
import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from relbias.data.source import cache as cache_module
from relbias.data.source.cache import ParseCache
from relbias.data.source.folder import MAX_BYTES, parse_folder
from relbias.data.source.python import parse_python


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "code"
    (root / "package").mkdir(parents=True)
    (root / "package" / "a.py").write_text("def f(x):\n    return x\n")
    (root / "b.py").write_text("x = 1\n")
    (root / "c.js").write_text("f(1)")
    (root / "notes.txt").write_text("no code")
    return root


def same(one, two):
    arrays = cache_module._ARRAYS
    texts = ("language", "tokens", "node_types", "functions", "problems")
    return all(getattr(one, name) == getattr(two, name) for name in texts) and all(
        getattr(one, name).equal(getattr(two, name)) and getattr(one, name).dtype == getattr(two, name).dtype
        for name in arrays
    )


def test_files_of_a_folder_and_of_those_in_it(folder):
    calls = []
    found = parse_folder(folder, progress=lambda done, total: calls.append((done, total)))
    assert list(found.sources) == ["b.py", "package/a.py"]
    assert str(found) == "2 files (0 from the cache), 1 functions, 11 tokens"
    assert calls == [(1, 2), (2, 2)]
    assert list(parse_folder(folder, languages="python").sources) == ["b.py", "package/a.py"]
    assert list(parse_folder(folder, ("python", "javascript")).sources) == ["b.py", "c.js", "package/a.py"]
    assert list(parse_folder(folder / "b.py").sources) == ["b.py"]


def test_languages_are_told_by_the_ends_of_names(tmp_path):
    for ending in ("py", "js", "mjs", "cjs", "jsx", "java", "go", "ts", "txt"):
        (tmp_path / f"a.{ending}").write_text("a")
    found = parse_folder(tmp_path, ("python", "javascript", "java", "go"))
    assert {name: source.language for name, source in found.sources.items()} == {
        "a.cjs": "javascript",
        "a.go": "go",
        "a.java": "java",
        "a.js": "javascript",
        "a.jsx": "javascript",
        "a.mjs": "javascript",
        "a.py": "python",
    }


def test_bad_files_are_named_and_do_not_stop_the_others(folder):
    (folder / "bad.py").write_text("x = (\n")
    (folder / "empty.py").write_text("")
    (folder / "nul.py").write_bytes(b"x = 1\0\n")
    (folder / "latin.py").write_bytes("x = 'ß'".encode("latin-1"))
    (folder / "huge.py").write_bytes(b"#" * (MAX_BYTES + 1))
    (folder / "gone.py").symlink_to(folder / "nowhere.py")
    (folder / "itself.py").symlink_to(folder / "itself.py")
    (folder / "package" / "loop").symlink_to(folder)
    os.mkfifo(folder / "pipe.py")
    found = parse_folder(folder)
    left_out = ["gone.py", "huge.py", "itself.py", "pipe.py"]
    assert sorted(set(found.problems) - set(found.sources)) == left_out
    assert sorted(found.problems) == sorted(["bad.py", "latin.py", "nul.py", *left_out])
    assert [name for name in found.sources if name not in found.problems] == ["b.py", "empty.py", "package/a.py"]
    lines = str(found).splitlines()
    assert "huge.py (left out): line 1, column 1: larger than 4 MiB" in lines
    assert "bad.py: line 1, column 5: '(' was never closed" in lines


def test_a_folder_with_several_links_is_read_by_the_first(folder):
    (folder / "package").rename(folder / "zz")
    for name in "hcgbfaed":
        (folder / f"link_{name}").symlink_to(folder / "zz")
    assert list(parse_folder(folder).sources) == ["b.py", "link_a/a.py"]


def test_a_file_that_is_deleted_meanwhile(folder):
    found = parse_folder(folder, progress=lambda done, total: (folder / "package" / "a.py").unlink(missing_ok=True))
    assert list(found.sources) == ["b.py"]
    assert found.problems["package/a.py"][0].message == "no longer there, or no regular file"


def test_the_cache_gives_what_parsing_gives(folder, tmp_path):
    (folder / "bad.py").write_text("x = (\ny = 1")
    languages = ("python", "javascript")
    first, second = (parse_folder(folder, languages, cache=tmp_path / "cache") for _ in range(2))
    assert (first.num_cached, second.num_cached) == (0, 4)
    assert all(same(first.sources[name], second.sources[name]) for name in first.sources)
    assert second.problems == first.problems
    (folder / "b.py").write_text("x = 2\n")
    third = parse_folder(folder, languages, cache=tmp_path / "cache")
    assert third.num_cached == 3
    assert third.sources["b.py"].tokens == ("x", "=", "2")


def test_damaged_files_are_rebuilt(folder, tmp_path):
    parse_folder(folder / "b.py", cache=tmp_path / "cache")
    (path,) = (tmp_path / "cache").rglob("*.npz")
    whole = path.read_bytes()
    changed = bytearray(whole)
    changed[len(whole) // 3] ^= 255
    for data in (b"", b"x", whole[:-30], whole[:100], bytes(changed)):
        path.write_bytes(data)
        found = parse_folder(folder / "b.py", cache=tmp_path / "cache")
        assert found.num_cached == 0
        assert found.sources["b.py"].tokens == ("x", "=", "1")
        assert parse_folder(folder / "b.py", cache=tmp_path / "cache").num_cached == 1


def test_files_with_another_content_are_not_trusted(tmp_path):
    cache = ParseCache(tmp_path)
    cache.put(b"x = 1", parse_python(b"x = 1"))
    (path,) = tmp_path.rglob("*.npz")
    with np.load(path) as file:
        arrays = dict(file)
    other = cache._path(cache_module._key(b"y = 1", "python"))
    other.parent.mkdir(exist_ok=True)
    other.write_bytes(path.read_bytes())
    assert cache.get(b"y = 1", "python") is None
    texts = json.loads(arrays["texts"].tobytes())
    short = np.frombuffer(json.dumps({**texts, "tokens": texts["tokens"][:2]}).encode(), dtype=np.uint8)
    for wrong in (
        {"texts": short},
        {"parents": arrays["parents"] + 9},
        {"kinds": arrays["kinds"].astype(np.int64)},
        {"variable_of_token": arrays["variable_of_token"][:2]},
        {"access_of_token": arrays["access_of_token"] + 4},
        {"flow": np.array([[0], [3]], dtype=np.int32)},
        {"calls": np.array([0, 1], dtype=np.int32)},
        {"spans": np.array([{}], dtype=object)},
    ):
        np.savez(path, **{**arrays, **wrong})
        assert cache.get(b"x = 1", "python") is None
    np.savez(path, **arrays)
    assert cache.get(b"x = 1", "python").tokens == ("x", "=", "1")


def test_files_of_a_cache_are_whole_and_for_others_too(tmp_path, monkeypatch):
    cache = ParseCache(tmp_path / "cache")
    parsed = parse_python(b"x = 1")
    (tmp_path / "usual").touch()
    cache.put(b"x = 1", parsed)
    (path,) = [file for file in (tmp_path / "cache").rglob("*") if file.is_file()]
    assert path.suffix == ".npz"
    assert path.stat().st_mode == (tmp_path / "usual").stat().st_mode
    path.unlink()

    def full(file, **arrays):
        file.write(b"PK")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.warns(UserWarning, match="No space left on device"):
        cache.put(b"x = 1", parsed)
    assert [file for file in (tmp_path / "cache").rglob("*") if file.is_file()] == []


def test_another_version_has_other_keys(tmp_path, monkeypatch):
    cache = ParseCache(tmp_path)
    cache.put(b"x = 1", parse_python(b"x = 1"))
    monkeypatch.setattr(cache_module, "FORMAT", cache_module.FORMAT + 1)
    assert cache.get(b"x = 1", "python") is None


def test_any_bit_of_a_cache_may_be_wrong(tmp_path):
    cache = ParseCache(tmp_path)
    source, parsed = b"x = 1", parse_python(b"x = 1")
    cache.put(source, parsed)
    (path,) = tmp_path.rglob("*.npz")
    whole = path.read_bytes()
    for place in range(0, len(whole), 5):
        changed = bytearray(whole)
        changed[place] ^= 1 << place // 5 % 8
        path.write_bytes(changed)
        found = cache.get(source, "python")
        assert found is None or same(found, parsed)


def test_foreign_files_in_a_cache_are_not_trusted(tmp_path):
    cache = ParseCache(tmp_path)
    source = b"def f(x): return x"
    cache.put(source, parse_python(source))
    (path,) = tmp_path.rglob("*.npz")
    with np.load(path) as file:
        arrays = dict(file)
    texts = json.loads(arrays["texts"].tobytes())
    v = len(texts["node_types"])

    def with_texts(**changed):
        return {"texts": np.frombuffer(json.dumps({**texts, **changed}).encode(), dtype=np.uint8)}

    for wrong in (
        {"texts": np.frombuffer(b"[" * 100_000, dtype=np.uint8)},
        with_texts(node_types=[-1] * v),
        with_texts(tokens=[1] * len(texts["tokens"])),
        with_texts(functions=[["f", v, 0, 3]]),
        with_texts(functions=[["f", 1, 0, 99]]),
        with_texts(functions=[["f", 1, 3, 0]]),
        with_texts(functions=[["f", "1", 0, 3]]),
        with_texts(problems=["abc"]),
        {"parents": np.arange(v, dtype=np.int32)},
        {"spans": arrays["spans"] - 9},
    ):
        np.savez(path, **{**arrays, **wrong})
        assert cache.get(source, "python") is None, wrong
    np.savez(path, **arrays)
    assert cache.get(source, "python") is not None


def test_a_cache_that_cannot_be_written_does_not_stop_parsing(folder, tmp_path):
    (tmp_path / "cache").write_text("no folder")
    with pytest.warns(UserWarning, match=r"nothing is kept in .*cache: .*; the files are parsed anew") as warnings:
        found = parse_folder(folder, cache=tmp_path / "cache")
    assert len(warnings) == 1
    assert list(found.sources) == ["b.py", "package/a.py"]


def test_folders_that_cannot_be_read_are_named(folder, monkeypatch):
    def scandir(path):
        if os.fspath(path).endswith("package"):
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return real(path)

    real = os.scandir
    monkeypatch.setattr(os, "scandir", scandir)
    found = parse_folder(folder)
    assert list(found.sources) == ["b.py"]
    assert "package (left out): line 1, column 1: cannot be read: Permission denied" in str(found).splitlines()


def test_a_folder_that_is_deleted_meanwhile(folder, monkeypatch):
    def stat(path, **options):
        if os.fspath(path).endswith("package"):
            raise FileNotFoundError(2, "No such file or directory", os.fspath(path))
        return real(path, **options)

    real = os.stat
    monkeypatch.setattr(os, "stat", stat)
    found = parse_folder(folder)
    assert list(found.sources) == ["b.py"]
    assert found.problems["package"][0].message == "cannot be read: No such file or directory"


def test_a_folder_without_sources(folder):
    assert str(parse_folder(folder, ("go",))) == "0 files (0 from the cache), 0 functions, 0 tokens"


def test_a_single_file_of_another_kind(folder):
    os.mkfifo(folder / "pipe.py")
    assert list(parse_folder(folder / "pipe.py").problems) == ["pipe.py"]
    with pytest.raises(ValueError, match=r"notes.txt is no file of python; its name should end in .py"):
        parse_folder(folder / "notes.txt")
    with pytest.raises(ValueError, match=r"b.py is no file of java, go; its name should end in .java, .go"):
        parse_folder(folder / "b.py", ("java", "go"))


def test_names_of_files_can_be_printed(folder):
    (folder / os.fsdecode(b"\xff\n.py")).write_text("x = (")
    (folder / "é.py").write_text("x = (")
    lines = str(parse_folder(folder)).encode().decode().splitlines()
    assert [line.split(":")[0] for line in lines[1:]] == ["é.py", "\\udcff\\n.py"]


def test_another_language_or_parser_has_other_keys(tmp_path, monkeypatch):
    cache = ParseCache(tmp_path)
    cache.put(b"x = 1", parse_python(b"x = 1"))
    monkeypatch.setattr(cache_module, "_versions", lambda language: sys.version)
    assert cache.get(b"x = 1", "java") is None
    monkeypatch.setattr(cache_module, "sys", SimpleNamespace(version="9.9"))
    assert cache.get(b"x = 1", "python") is None


def test_unknown_languages_are_refused(folder):
    with pytest.raises(ValueError, match="no parser of cobol; the languages are python, javascript, java, go"):
        parse_folder(folder, ("cobol",))
