import os

import pytest

from relbias.data.source import user_files
from relbias.data.source.user_files import read_files

GOOD = "def f(a, b):\n    return a + b\n"


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code" / "inner").mkdir(parents=True)
    for name in ("code/z.py", "code/inner/a.py", "script", "code/notes.txt"):
        (tmp_path / name).write_text(GOOD)
    return tmp_path


def test_files_and_folders_in_the_order_in_which_they_are_given(root):
    sources, notices = read_files(["script", "code"])
    assert list(sources) == ["script", "code/inner/a.py", "code/z.py"]
    assert {len(source.functions) for source in sources.values()} == {1}
    assert notices == []
    assert list(read_files(["code/z.py", "code", "script", root / "script"])[0]) == [
        "code/z.py",
        "code/inner/a.py",
        "script",
    ]


BAD = {
    "syntax.py": (b"x = (\n" + GOOD.encode(), ":1:5: a part cannot be read: '(' was never closed"),
    "several.py": (b"x = 1 1\n\ny = )\n", ":1:7: cannot be read: invalid syntax, and 1 more"),
    "empty.py": (b"", ": there is nothing in it"),
    "comment.py": (b"# nothing\n", ": there is nothing in it"),
    "nul.py": (GOOD.encode() + b"x = 1\0\n", ":3:6: a part cannot be read: a NUL character"),
    "latin.py": ("x = 'ß'".encode("latin-1"), ":1:1: cannot be read: no text in the encoding that it declares"),
    "deep.py": (b"x = " + b"(" * 300 + b")" * 300, ":1:"),
    "image.py": (bytes(range(256)), ":1:1: cannot be read: no text in the encoding that it declares"),
}


@pytest.mark.parametrize("name", BAD)
def test_each_bad_file_is_one_line_and_the_others_are_read(root, name):
    content, line = BAD[name]
    (root / "code" / name).write_bytes(content)
    for given in (["code"], [f"code/{name}", "code"]):
        sources, notices = read_files(given)
        assert {"code/z.py", "code/inner/a.py"} < set(sources)
        assert len(notices) == 1
        assert notices[0].startswith(f"code/{name}{line}")
        assert "\n" not in notices[0]
        has_functions = name in ("syntax.py", "nul.py")
        assert bool(sources[f"code/{name}"].functions) == has_functions


def test_what_is_no_file_is_one_line_each(root):
    (root / "code" / "gone.py").symlink_to(root / "nowhere.py")
    (root / "code" / "itself.py").symlink_to(root / "code" / "itself.py")
    (root / "code" / "loop").symlink_to(root / "code")
    (root / "nothing").mkdir()
    os.mkfifo(root / "pipe.py")
    sources, notices = read_files(["absent.py", "code", "nothing", "pipe.py", "code/itself.py", "a" * 300])
    assert list(sources) == ["code/inner/a.py", "code/z.py"]
    assert notices == [
        "absent.py: there is no such file or folder",
        "code/gone.py: no longer there, or no regular file",
        "code/itself.py: no longer there, or no regular file",
        "nothing: no file in it ends in .py",
        "pipe.py: no longer there, or no regular file",
        "a" * 300 + ": there is no such file or folder",
    ]


def test_a_file_that_is_deleted_while_it_is_read(root, monkeypatch):
    parse = user_files.parse_file

    def parse_deleted(path, language):
        os.unlink(path)
        return parse(path, language)

    monkeypatch.setattr(user_files, "parse_file", parse_deleted)
    assert read_files(["script"]) == ({}, ["script: no longer there, or no regular file"])


def test_names_that_are_no_text_are_printed(root):
    for name in (b"a\xff.py", b"b\n.py"):
        with open(name, "wb") as file:
            file.write(GOOD.encode())
    sources, notices = read_files([os.fsdecode(b"a\xff.py"), "b\n.py", os.fsdecode(b"c\xff")])
    assert list(sources) == ["a\\udcff.py", "b\\n.py"]
    assert notices == ["c\\udcff: there is no such file or folder"]
