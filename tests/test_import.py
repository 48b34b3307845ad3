"""`import relbias` is light, and its attributes come on demand."""

import subprocess
import sys

import pytest

import relbias
from relbias._extras import MissingExtraError, extra
from relbias._nearest import nearest


def python(code: str) -> str:
    """Runs code in a fresh interpreter that finds this package, and returns what it printed."""
    path = str(relbias.__path__[0].removesuffix("/relbias"))
    code = f"import sys; sys.path.insert(0, {path!r})\n{code}"
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_import_loads_neither_torch_nor_numpy():
    assert python("import relbias, relbias.resources; print({'torch', 'numpy'} & set(sys.modules))") == "set()"


def test_attribute_loads_on_demand():
    assert python("import relbias as rb; rb.Terms; print('torch' in sys.modules, 'Terms' in vars(rb))") == "True True"


@pytest.mark.parametrize("name", relbias.__all__)
def test_every_public_name_is_there(name):
    assert getattr(relbias, name) is not None
    assert name in dir(relbias)


def test_unknown_attribute_names_the_nearest():
    with pytest.raises(AttributeError, match=r"no attribute 'relative_atention'; did you mean 'relative_attention'\?"):
        relbias.relative_atention  # noqa: B018


def test_missing_package_names_its_extra():
    line = r"^absent_package is not installed; run: pip install 'relbias\[plot\]'$"
    with pytest.raises(MissingExtraError, match=line), extra("plot"):
        import absent_package.part  # noqa: F401


def test_our_own_missing_module_is_no_extra():
    with pytest.raises(ModuleNotFoundError, match=r"relbias\.absent") as caught, extra("plot"):
        import relbias.absent  # noqa: F401
    assert not isinstance(caught.value, MissingExtraError)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("shae", "did you mean 'shaw'?"),
        ("SHAW", "did you mean 'shaw'?"),
        ("digits", "did you mean 'vision/digits'?"),
        ("zzz", "known: rope, shaw, vision/digits"),
        ("", "known: rope, shaw, vision/digits"),
    ],
)
def test_nearest(name, hint):
    assert nearest(name, ["shaw", "rope", "vision/digits"]) == hint


def test_nearest_shortens_long_lists():
    assert nearest("zzz", [f"a{i:02}" for i in range(20)]).endswith("a11, ...")
