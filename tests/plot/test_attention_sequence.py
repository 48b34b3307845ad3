import numpy as np
import pytest

from relbias.plot import plot_attention_sequence


def labels(axis, side):
    line = axis.xaxis if side == "x" else axis.yaxis
    return [label.get_text() for label in line.get_ticklabels()]


def test_weights_heads_and_words(draw, titles, bars, column, softmax):
    weights = {"blocks.0": softmax(2, 3, 3), "blocks.1": softmax(2, 3, 3)}
    figure, rows = draw(plot_attention_sequence, weights, tokens=["it", "costs", "$5"], title="a sentence")
    for name, layer in weights.items():
        assert np.allclose(column(rows, name, "head 1"), layer[1].ravel())
        assert np.allclose(column(rows, name, "mean"), (layer[0] + layer[1]).ravel() / 2)
    assert (rows[1]["query"], rows[1]["key"]) == ("0", "1")
    assert len(rows) == 2 * 3 * 9
    assert titles(figure) == ["head 0", "head 1", "mean"] * 2
    assert labels(figure.axes[0], "x") == labels(figure.axes[0], "y") == ["it", "costs", "$5"]
    assert [figure.axes[i].get_ylabel() for i in (0, 3)] == ["blocks.0\nquery", "blocks.1\nquery"]
    assert bars(figure) == ["attention weight"] * 2
    assert figure.get_suptitle() == "a sentence"


def test_queries_are_the_last_tokens_unless_given(draw, softmax):
    figure, _ = draw(plot_attention_sequence, {"a": softmax(1, 2, 3)}, tokens=["x", "y", "z"])
    assert labels(figure.axes[0], "y") == ["y", "z"]
    figure, _ = draw(plot_attention_sequence, {"a": softmax(1, 2, 3)}, tokens=["x", "y", "z"], query_tokens=["p", "q"])
    assert (labels(figure.axes[0], "x"), labels(figure.axes[0], "y")) == (["x", "y", "z"], ["p", "q"])


@pytest.mark.parametrize(("n", "written"), [(32, True), (33, False)])
def test_many_tokens_are_places(n, written, draw, softmax):
    figure, _ = draw(plot_attention_sequence, {"a": softmax(1, n, n)}, tokens=[f"w{i}" for i in range(n)])
    figure.draw_without_rendering()
    assert ("w5" in labels(figure.axes[0], "x")) is ("w5" in labels(figure.axes[0], "y")) is written
    assert ("20" in labels(figure.axes[0], "x")) is not written


def test_one_token_and_layers_of_several_sizes(draw, titles, column, softmax):
    figure, rows = draw(plot_attention_sequence, {"a": [[1.0]], "b": softmax(3, 4, 4)})
    assert titles(figure) == ["head 0", "head 0", "head 1", "head 2", "mean"]
    assert column(rows, "a", "head 0").tolist() == [1.0]


def test_nothing_is_nan(draw, column):
    figure, rows = draw(plot_attention_sequence, {"a": np.full((2, 2, 2), np.nan)})
    assert not column(rows, "a", "mean").any()
    assert not figure.axes[0].images[0].get_array().mask.any()


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((1, 2, 3), {"tokens": ["x", "y"]}, "there are 2 tokens, and the weights of 'a' have 3 keys"),
        ((1, 2, 3), {"query_tokens": ["x"]}, "there are 1 query_tokens, and the weights of 'a' have 2 queries"),
        ((1, 3, 2), {"tokens": ["x", "y"]}, "'a' have 3 queries for 2 keys; give query_tokens"),
    ],
)
def test_what_does_not_fit(shape, options, message, softmax, tmp_path):
    with pytest.raises(ValueError, match=message):
        plot_attention_sequence({"a": softmax(*shape)}, tmp_path / "a.png", **options)
