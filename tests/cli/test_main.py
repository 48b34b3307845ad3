"""The commands that need no training, the dispatch of those that do, and errors as one line."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import relbias
from relbias.cli import main as cli


@pytest.fixture
def relbias_fails(capsys):
    """Runs the program, expects it to fail, and returns its one line."""

    def run(*argv):
        assert cli.main(list(argv)) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1
        assert err.startswith("relbias: error: ")
        return err.removeprefix("relbias: error: ").rstrip()

    return run


def printed(capsys, *argv):
    assert cli.main(list(argv)) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "argv",
    [["list"], ["list", "recipes"], ["list", "configs"], ["show", "encoding/t5"], ["--help"], ["list", "--help"]],
)
def test_file_commands_do_not_import_torch(argv):
    source = str(Path(relbias.__file__).parents[1])
    code = (
        f"import sys; sys.path.insert(0, {source!r})\n"
        "from relbias.cli.main import main\n"
        "try:\n    code = main(sys.argv[1:])\nexcept SystemExit as end:\n    code = end.code\n"
        "sys.exit(code or int(bool({'torch', 'numpy', 'lightning'} & set(sys.modules))))"
    )
    done = subprocess.run([sys.executable, "-c", code, *argv], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_list_defaults_to_recipes(capsys):
    out = printed(capsys, "list")
    assert out == printed(capsys, "list", "recipes")
    assert any(line.split()[0] == "vision/digits" for line in out.splitlines())


def test_list_takes_wildcards(capsys):
    names = [line.split()[0] for line in printed(capsys, "list", "configs", "*rope*").splitlines()]
    assert names == [
        f"encoding/{name}" for name in ("rope", "rope_alibi", "rope_axial", "rope_mixed", "rope_ntk", "rope_yarn")
    ]


def test_list_encodings_and_implementations(capsys):
    assert printed(capsys, "list", "encodings", "rope_l*").split() == ["rope_linear", "rope_llama3", "rope_longrope"]
    assert {"reference", "folded", "blockwise"} <= set(printed(capsys, "list", "implementations").split())


def test_list_timm(capsys):
    assert printed(capsys, "list", "timm", "vit_small_patch16_224").split() == ["vit_small_patch16_224"]


def test_list_of_something_else(relbias_fails):
    assert relbias_fails("list", "encoding") == "nothing to list under 'encoding'; did you mean 'encodings'?"


def test_show_prints_the_file(capsys):
    assert printed(capsys, "show", "encoding/t5").endswith("model:\n  init_args:\n    encoding: t5\n")


@pytest.mark.parametrize("command", ["show", "copy", "check"])
def test_unknown_name(command, relbias_fails):
    assert relbias_fails(command, "vision/digit").endswith("'vision/digit'; did you mean 'vision/digits'?")


def test_copy_keeps_the_name_and_never_overwrites(tmp_path, capsys, relbias_fails):
    target = tmp_path / "t5.yaml"
    assert printed(capsys, "copy", "encoding/t5", str(tmp_path)) == f"{target}\n"
    content = target.read_text()
    assert "encoding: t5" in content
    target.write_text("mine")
    assert relbias_fails("copy", "encoding/t5", str(tmp_path)).startswith(f"{target} exists")
    assert target.read_text() == "mine"
    printed(capsys, "copy", "encoding/t5", str(tmp_path / "other.yaml"))
    assert (tmp_path / "other.yaml").read_text() == content


def test_copy_into_a_missing_folder(tmp_path, relbias_fails):
    target = tmp_path / "absent" / "x.yaml"
    assert relbias_fails("copy", "encoding/t5", str(target)) == f"No such file or directory: {target}"
    assert relbias_fails("copy", "encoding/t5", f"{tmp_path}/absent/").startswith(
        f"there is no folder {tmp_path}/absent/;"
    )
    assert relbias_fails("copy", "encoding/t5", f"{tmp_path}/absent").startswith(
        f"there is no folder {tmp_path}/absent;"
    )
    assert not (tmp_path / "absent").exists()


def test_show_of_what_is_no_text(tmp_path, relbias_fails):
    (tmp_path / "x.yaml").write_bytes(b"\xff")
    assert relbias_fails("show", str(tmp_path / "x.yaml")).startswith(f"{tmp_path / 'x.yaml'} is no text in UTF-8")


def test_help_lists_every_command(capsys):
    out = printed(capsys, "--help")
    assert out == printed(capsys)
    assert all(f"\n  {command} " in out for command in cli.COMMANDS)


def test_version(capsys):
    assert printed(capsys, "--version") == f"{relbias.__version__}\n"


@pytest.mark.parametrize("command", list(cli.COMMANDS))
def test_every_command_has_help(command, capsys):
    try:
        code = cli.main([command, "--help"])
    except SystemExit as end:  # argparse's way
        code = end.code
    assert code == 0
    assert f"relbias {command}" in capsys.readouterr().out


def test_unknown_command(relbias_fails):
    assert relbias_fails("tets") == "no command 'tets'; did you mean 'test'?"


def test_unknown_option(relbias_fails):
    assert relbias_fails("show", "encoding/t5", "--x") == "unrecognized arguments: --x; see relbias show --help"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("two\nlines"), "two lines"),
        (PermissionError(13, "Permission denied", "runs"), "Permission denied: runs"),
        (OSError("disk full"), "disk full"),
        (relbias._extras.MissingExtraError("timm is not installed"), "timm is not installed"),
    ],
)
def test_errors_of_the_input_become_one_line(error, line, monkeypatch, relbias_fails):
    def fail(command, argv):
        raise error

    monkeypatch.setattr(cli.importlib, "import_module", lambda name: SimpleNamespace(main=fail))
    assert relbias_fails("fit") == line


def test_faults_of_the_program_keep_their_traceback(monkeypatch):
    def fail(command, argv):
        raise RuntimeError("a fault")

    monkeypatch.setattr(cli.importlib, "import_module", lambda name: SimpleNamespace(main=fail))
    with pytest.raises(RuntimeError, match="a fault"):
        cli.main(["fit"])


@pytest.mark.parametrize("command", ["fit", "validate", "test", "predict"])
def test_training_commands_get_their_arguments(command, monkeypatch):
    calls = []
    home = SimpleNamespace(main=lambda *arguments: calls.append(arguments))
    monkeypatch.setattr(cli.importlib, "import_module", lambda name: calls.append(name) or home)
    assert cli.main([command, "-c", "vision/digits"]) == 0
    assert calls == ["relbias.cli.train", (command, ["-c", "vision/digits"])]
