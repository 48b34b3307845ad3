"""What is built from the repository holds what it must."""

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import relbias
from relbias import resources

ROOT = Path(__file__).parents[1]


def files(kind):
    return {f"relbias/{kind}/{name}.yaml" for name in resources.names(kind)}


def hatchling(target, source, destination):
    """Builds in a process of its own, without the network, and returns the file."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", destination]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (built,) = destination.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return built


def test_wheel_holds_recipes_and_configs(tmp_path):
    """Built from the source distribution, as package indices do."""
    with tarfile.open(hatchling("sdist", ROOT, tmp_path)) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.glob("relbias-*/")
    wheel = hatchling("wheel", source, tmp_path)
    content = set(zipfile.ZipFile(wheel).namelist())
    assert wheel.name == f"relbias-{relbias.__version__}-py3-none-any.whl"
    assert files("recipes") | files("configs") | {"relbias/py.typed", "relbias/cli/main.py"} <= content
    assert not [name for name in content if name.startswith(("tests/", "recipes/", "configs/"))]
    assert any(name.endswith("licenses/LICENSE") for name in content)

    # The wheel alone, away from the clone, lists the same names.
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r}); from relbias.cli.main import main; main(['list'])"
    )
    out = subprocess.run([sys.executable, "-I", "-c", code], check=True, capture_output=True, text=True).stdout
    assert [line.split()[0] for line in out.splitlines()] == resources.names("recipes")


def test_project_file_agrees_with_the_rest():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    assert list(extras) == ["vision", "graph", "audio", "text", "code", "train", "plot", "all"]
    assert extras["all"] == [f"relbias[{','.join(name for name in extras if name != 'all')}]"]
    assert [line.split(">")[0] for line in project["project"]["dependencies"]] == ["torch", "einops"]
    assert f"version: {relbias.__version__}\n" in (ROOT / "CITATION.cff").read_text()
