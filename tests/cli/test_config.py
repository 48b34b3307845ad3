"""Merging, and above all the encoding, which is replaced whole."""

import pytest

from relbias.cli.arguments import load, parse
from relbias.cli.build import build
from relbias.cli.config import merge
from relbias.cli.summary import summarize

SHAW = {"class_path": "relbias.encodings.Shaw", "init_args": {"max_distance": 3}}
KEY = "--model.init_args.encoding"


def merged(*argv):
    return merge(parse(["-c", "vision/digits", *argv]).sources)


def encoding(*argv):
    return merged(*argv)["model"]["init_args"]["encoding"]


def test_the_recipe_stands_as_it_is():
    assert encoding() == SHAW


def test_a_config_replaces_the_encoding_whole():
    assert encoding("-c", "encoding/table") == "table"


def test_a_name_replaces_a_class_with_its_options():
    assert encoding(KEY, "shaw") == "shaw"


def test_the_last_one_wins_whatever_it_is():
    assert encoding(KEY, "t5", "-c", "encoding/table") == "table"
    assert encoding("-c", "encoding/table", f"{KEY}=t5") == "t5"


@pytest.mark.parametrize(
    "value",
    [
        '{"class_path": "relbias.encodings.Table", "init_args": {"strength": 0.1}}',
        "{class_path: relbias.encodings.Table, init_args: {strength: 0.1}}",
    ],
)
def test_a_class_path_in_json_or_yaml_brings_none_of_the_old_options(value):
    assert encoding(KEY, value) == {"class_path": "relbias.encodings.Table", "init_args": {"strength": 0.1}}


def test_a_class_path_key_drops_the_old_options():
    assert encoding(f"{KEY}.class_path", "relbias.encodings.Shaw") == {**SHAW, "init_args": {}}


def test_options_change_a_class_path():
    assert encoding(f"{KEY}.init_args.values", "true")["init_args"] == {"max_distance": 3, "values": True}
    assert encoding(f"{KEY}.class_path", "relbias.encodings.Table", f"{KEY}.init_args.strength", "0.1") == {
        "class_path": "relbias.encodings.Table", "init_args": {"strength": 0.1},
    }  # fmt: skip


def test_options_of_a_name_are_refused():
    with pytest.raises(ValueError, match="applies to an encoding given by class_path, and the encoding is 'table'"):
        encoding("-c", "encoding/table", f"{KEY}.init_args.max_distance", "3")


def test_options_of_a_mapping_are_refused(tmp_path):
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text("model: {init_args: {encoding: {init_args: {max_distance: 3}}}}")
    assert encoding("-c", str(overlay)) == SHAW  # on a class_path it may stand in a file as well
    with pytest.raises(ValueError, match="applies to an encoding given by class_path"):
        encoding(KEY, "{offset: t5}", "-c", str(overlay))
    with pytest.raises(ValueError, match="applies to an encoding given by class_path"):
        encoding(KEY, "{offset: t5, init_args: {max_distance: 3}}")


def test_a_mapping_replaces_the_encoding_and_completes_its_classes():
    value = "{a: t5, b: {class_path: relbias.encodings.Table}}"
    assert encoding(KEY, value) == {"a": "t5", "b": {"class_path": "relbias.encodings.Table", "init_args": {}}}


def test_options_beside_a_class_path_are_refused():
    with pytest.raises(ValueError, match="its options go under init_args"):
        encoding(KEY, "{class_path: relbias.encodings.Shaw, max_distance: 3}")


def test_other_keys_are_merged_one_by_one():
    config = merged("--trainer.max_epochs", "3", "--model.init_args.network.init_args.dim=32")
    assert config["trainer"]["max_epochs"] == 3
    assert config["trainer"]["gradient_clip_val"] == 1.0
    assert config["model"]["init_args"]["network"]["init_args"]["dim"] == 32
    assert config["model"]["init_args"]["network"]["init_args"]["patch_size"] == 2


def test_another_class_path_replaces_its_mapping():
    network = "{class_path: torch.nn.Linear, init_args: {in_features: 3}}"
    config = merged("--model.init_args.network", network)
    assert config["model"]["init_args"]["network"]["init_args"] == {"in_features": 3}


def test_another_network_keeps_the_options_that_it_has_too():
    own = {
        "class_path": "relbias.models.vision.VisionTransformer",
        "init_args": {"dim": 8, "patch_size": 2, "depth": 3},
    }
    new = {"class_path": "relbias.models.graph_baseline.GIN", "init_args": {"depth": 2}}
    base = {"model": {"init_args": {"network": own}}}
    config = merge([("a", base), ("b", {"model": {"init_args": {"network": new}}})])
    assert config["model"]["init_args"]["network"] == {**new, "init_args": {"dim": 8, "depth": 2}}
    del new["init_args"]
    config = merge([("a", base), ("b", {"model": {"init_args": {"network": new}}})])
    assert config["model"]["init_args"]["network"]["init_args"] == {"dim": 8, "depth": 3}


def callbacks(*values):
    argv = [word for value in values for word in ("--trainer.callbacks", value)]
    return merged(*argv)["trainer"]["callbacks"]


RATES, TIMER = (f"lightning.pytorch.callbacks.{name}" for name in ("LearningRateMonitor", "Timer"))
STEPS = f"{{class_path: {RATES}, init_args: {{logging_interval: step}}}}"


def test_callbacks_add_up():
    assert callbacks(STEPS) == [{"class_path": RATES, "init_args": {"logging_interval": "step"}}]
    assert callbacks(STEPS, f"[{TIMER}]") == [*callbacks(STEPS), TIMER]
    assert merged("--trainer.callbacks", STEPS, "-c", "trainer/compile")["trainer"]["callbacks"] == [
        *callbacks(STEPS), {"class_path": "relbias.tasks.Compile"},
    ]  # fmt: skip


def test_a_callback_takes_the_place_of_one_of_its_class():
    before = f"[{STEPS}, {{class_path: {TIMER}}}]"
    assert callbacks(before, f"{{class_path: {RATES}}}") == [{"class_path": RATES}, {"class_path": TIMER}]
    assert callbacks(before, f"[{RATES}]") == [RATES, {"class_path": TIMER}]


def test_two_callbacks_of_a_class_in_one_list_both_stay():
    two = f"[{{class_path: {TIMER}, init_args: {{duration: 1}}}}, {{class_path: {TIMER}, init_args: {{duration: 2}}}}]"
    assert [each["init_args"]["duration"] for each in callbacks(two)] == [1, 2]
    assert callbacks(f"[{TIMER}]", two) == callbacks(two)


@pytest.mark.parametrize(("nothing", "left"), [("null", None), ("[]", [])])
def test_callbacks_can_be_removed(nothing, left):
    assert callbacks(f"[{TIMER}]", nothing) == left
    assert callbacks(nothing, f"[{TIMER}]") == [TIMER]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--trainer.callbacks", "[{init_args: {}}]"], "callbacks has {'init_args': {}}, expected a class_path"),
        (["--trainer.max_epoch", "3"], "unknown key 'trainer.max_epoch'; did you mean 'max_epochs'?"),
        (["--model.init_args.encodin", "t5"], "unknown key 'model.init_args.encodin'; did you mean 'encoding'?"),
        (["--data.init_args.batchsize", "3"], "unknown key 'data.init_args.batchsize'; did you mean 'batch_size'?"),
        ([f"{KEY}.init_args.max_distanc", "3"], "did you mean 'max_distance'?"),
        ([KEY, "shew"], "there is no encoding 'shew'; did you mean 'shaw'?"),
        ([KEY, "{offset: tabel}"], "there is no encoding 'tabel'; did you mean 'table'?"),
        ([f"{KEY}.class_path", "relbias.encodings.Show"], "relbias.encodings has no 'Show'; did you mean 'Shaw'?"),
        (["--data.class_path", "relbias.dta.Digits"], "'relbias.dta.Digits', which cannot be imported"),
        (["--model.lr", "3"], "unknown key 'model.lr'; known: class_path, init_args"),
        ([f"{KEY}.init_args", "3"], "model.init_args.encoding.init_args is 3, expected a mapping"),
        ([KEY, "{class_path: relbias.encodings.Shaw, init_args: 0}"], "encoding.init_args is 0, expected a mapping"),
        ([f"{KEY}.max_distance", "2"], "encoding.max_distance is 2, expected the name of an encoding or a class_path;"),
        ([KEY, "3"], "model.init_args.encoding is 3, expected the name of an encoding or a class_path"),
        ([KEY, "[shaw]"], "model.init_args.encoding is ['shaw'], expected"),
        ([KEY, "{class_path: [1]}"], "encoding.class_path is [1], expected a module and a class"),
        ([KEY, "{class_path: torch.nn.Linear}"], "torch.nn.modules.linear.Linear, which is no Encoding"),
        ([KEY, "{a: {class_path: torch.nn.Linear}}"], "encoding.a.class_path is torch.nn.modules.linear.Linear, which"),
        ([KEY, "{class_path: Shaw}"], "'Shaw', which cannot be imported"),
        (["--data.class_path", "torch.pi"], "'torch.pi', which is 3.14"),
        (["--model.init_args", "null"], "model.init_args is empty, expected a mapping"),
        (["--data.init_args", "3"], "data.init_args is 3, expected a mapping"),
        (["--model", "{class_path: [1]}"], "model.class_path is [1], expected a module and a class"),
        (["-cvision/digits"], "unknown option '-cvision/digits'; known: --data, --model"),
        (["-x"], "unknown option '-x'"),
        (["-c"], "-c needs a value"),
        (["-c", "/"], "/ is a folder; give a YAML file"),
        (["--seed_everything", "false"], "seed_everything is False, expected an integer"),
        (["--seed_everything", "1.5"], "seed_everything is 1.5, expected an integer"),
        (["--trainer.fast_dev_run", "true"], "trainer.fast_dev_run is True, and a run needs its training"),
        (["--trainer.fast_dev_run", "2"], "trainer.fast_dev_run is 2, and a run needs its training"),
        (["--trainer.barebones", "true"], "trainer.barebones is True, and a run needs its training"),
        (["--trainer.enable_checkpointing", "false"], "trainer.enable_checkpointing is False, and a run needs"),
        (["--trainer.limit_val_batches", "0"], "trainer.limit_val_batches is 0, and a run needs"),
        (["--trainer.max_epochs", "0"], "trainer.max_epochs is 0, and a run needs"),
        (["--trainer", "3"], "trainer is 3, expected a mapping"),
        (["--modl.x", "3"], "unknown option '--modl.x'; did you mean '--model'?"),
        (["--trainer.max_epochs"], "--trainer.max_epochs needs a value"),
        (["-c", "encoding/shew"], "no recipe, config or file 'encoding/shew'; did you mean 'encoding/shaw'?"),
    ],
)  # fmt: skip
def test_what_does_not_exist_answers_with_the_nearest(argv, message):
    with pytest.raises(ValueError, match=r".") as error:
        merged(*argv)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_run_folder_answers_with_its_configuration(tmp_path):
    (tmp_path / "config.yaml").write_text("model:\n")
    with pytest.raises(ValueError, match=f"{tmp_path} is a folder; give .* in it, {tmp_path}/config.yaml"):
        merged("-c", str(tmp_path))


def test_the_message_names_the_overlay(tmp_path):
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text("trainer: {max_epochz: 3}")
    with pytest.raises(ValueError, match=f"^{overlay}: unknown key 'trainer.max_epochz'"):
        merged("-c", str(overlay))


@pytest.mark.parametrize(
    ("text", "message"),
    [("a: [", "is not YAML"), ("- a", "holds list, expected a mapping"), ("\xff", "x.yaml is no text in UTF-8")],
)
def test_a_file_that_is_no_configuration(tmp_path, text, message):
    file = tmp_path / "x.yaml"
    file.write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=message):
        parse(["-c", str(file)])


def test_numbers_with_an_exponent_are_numbers():
    assert load("[1e-3, 2E4, -1.5e+3, .5e1, 1e]", "") == [1e-3, 2e4, -1500.0, 5.0, "1e"]


def test_an_unknown_form_of_jsonargparse_message_is_one_line():
    assert summarize("something\n  new") == ("", "something new")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--trainer.max_epochs", "three"], "trainer.max_epochs: expected int or null, got three"),
        (["--trainer.callbacks", "3"], "trainer.callbacks: Not a valid subclass of Callback, got 3"),
        (
            ["--data.class_path", "torch.nn.Linear"],
            "data: expected a subclass of LightningDataModule, got torch.nn.Linear",
        ),
        (
            [f"{KEY}.init_args.max_distance", "x"],
            "model.init_args.encoding.init_args.max_distance: expected int, got x",
        ),
        (
            ["--model.init_args.network.init_args.dim", "null"],
            "model.init_args.network: the following arguments are required: dim",
        ),
        (["--model.init_args.network", "3"], "model.init_args.network: expected import path or a subclass spec, got 3"),
        (
            [KEY, "{a: {class_path: relbias.encodings.Shaw, init_args: {max_distance: x}}}"],
            "vision/digits and the options given: model.init_args.encoding.init_args.max_distance: expected int, got x",
        ),
    ],
)
def test_a_value_of_the_wrong_type(argv, message):
    with pytest.raises(ValueError, match=r".") as error:
        build(parse(["-c", "vision/digits", *argv]).sources, with_trainer=False)
    assert str(error.value) == message


def test_a_wrong_value_is_told_of_the_last_file_that_sets_it(tmp_path):
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text("trainer: {max_epochs: three}")
    with pytest.raises(ValueError, match=f"^{overlay}: trainer.max_epochs: expected int or null, got three$"):
        build(parse(["-c", "vision/digits", "-c", str(overlay), "-c", "encoding/t5"]).sources, with_trainer=False)


def test_a_config_may_stand_after_an_equals_sign():
    assert parse(["-c=encoding/t5"]).configs == ["encoding/t5"]
