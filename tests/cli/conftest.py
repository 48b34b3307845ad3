import pytest

from relbias.cli import main as cli

# Keys that make a run of the digits recipe take a second.
TINY = [
    "-c", "trainer/smoke", "--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false",
    "--model.init_args.network.init_args", "{patch_size: 4, dim: 8, depth: 1, num_heads: 2}",
    "--data.init_args", "{test_shift: 2, batch_size: 16}", "--trainer.log_every_n_steps", "1",
]  # fmt: skip


@pytest.fixture(scope="session")
def tiny():
    return ["-c", "vision/digits", *TINY]


@pytest.fixture(scope="session")
def run_dir(tiny, tmp_path_factory):
    """A finished run, to be read and not to be changed."""
    path = tmp_path_factory.mktemp("runs") / "run"
    assert cli.main(["fit", *tiny, "--run_dir", str(path)]) == 0
    return path


@pytest.fixture
def relbias_fails(capsys):
    """Runs the program, expects it to fail, and returns its one line."""

    def run(*argv):
        assert cli.main([str(word) for word in argv]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        lines = [line for line in err.splitlines() if not line.startswith("Seed set")]
        assert len(lines) == 1
        return lines[0].removeprefix("relbias: error: ")

    return run
