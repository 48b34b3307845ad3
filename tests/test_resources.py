"""Recipes and configs are found by name and by path, in a clone and in a wheel."""

import pytest

from relbias import resources


@pytest.mark.parametrize("name", resources.names("configs", "encoding/*"))
def test_overlays_name_the_encodings_of_the_registry(name):
    from relbias import list_encodings
    from relbias.cli.arguments import read
    from relbias.cli.run_folder import label

    encoding = read(name)["model"]["init_args"]["encoding"]
    if isinstance(encoding, str) or "class_path" in encoding:
        encoding = {"hops" if name == "encoding/hops" else label(encoding): encoding}  # hops: a table with options
    labels = {label(part) for part in encoding.values()}
    # Of several relations: the file is named after them, or after the method that has them.
    assert name.removeprefix("encoding/") in {"_".join(encoding), *labels}
    assert labels <= set(list_encodings())


def test_names_take_wildcards():
    assert resources.names("configs", "*rope*") == [
        f"encoding/{name}" for name in ("rope", "rope_alibi", "rope_axial", "rope_mixed", "rope_ntk", "rope_yarn")
    ]
    assert resources.names("configs", "nothing") == []


def test_no_name_stands_in_both_folders():
    assert not set(resources.names("recipes")) & set(resources.names("configs"))


def test_every_file_says_what_it_is():
    for kind in resources.KINDS:
        for name in resources.names(kind):
            assert len(resources.summary(resources.find(name))) > 10, name


def test_find_by_name_and_by_path(tmp_path):
    assert resources.find("encoding/t5") == resources.folder("configs") / "encoding/t5.yaml"
    mine = tmp_path / "mine.yaml"
    mine.write_text("model: {}\n")
    assert resources.find(str(mine)) == mine
    assert resources.summary(mine) == ""


@pytest.mark.parametrize(("wrong", "right"), [("encoding/t6", "encoding/t5"), ("alibi", "encoding/alibi")])
def test_unknown_name_suggests_the_nearest(wrong, right):
    with pytest.raises(resources.UnknownNameError, match=f"{wrong!r}; did you mean {right!r}"):
        resources.find(wrong)


def test_a_folder_is_no_recipe(tmp_path):
    with pytest.raises(resources.UnknownNameError):
        resources.find(str(tmp_path))


def test_unknown_kind():
    with pytest.raises(ValueError, match="kind is 'recipe', expected one of recipes, configs"):
        resources.names("recipe")


def test_missing_folder_says_so(tmp_path, monkeypatch):
    package = tmp_path / "lib" / "src" / "relbias"
    package.mkdir(parents=True)
    monkeypatch.setattr(resources, "__file__", str(package / "resources.py"))
    with pytest.raises(FileNotFoundError, match="the recipes folder is missing"):
        resources.names("recipes")


def test_a_wheel_holds_the_folders_inside_the_package(tmp_path, monkeypatch):
    package = tmp_path / "site" / "relbias"
    (package / "recipes" / "vision").mkdir(parents=True)
    (package / "recipes" / "vision" / "mine.yaml").write_text("# Mine.\n")
    monkeypatch.setattr(resources, "__file__", str(package / "resources.py"))
    assert resources.names("recipes") == ["vision/mine"]
    assert resources.summary(resources.find("vision/mine")) == "Mine."
