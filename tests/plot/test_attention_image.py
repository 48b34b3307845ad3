import numpy as np
import pytest

from relbias.plot import plot_attention_image


def test_the_class_token_is_the_query(draw, titles, bars, column, softmax):
    weights = {"network.blocks.0.attention": softmax(3, 8, 8), "network.blocks.1.attention": softmax(3, 8, 8)}
    figure, rows = draw(lambda path: plot_attention_image(weights, np.ones((3, 4, 6)), (2, 3), path, prefix_tokens=2))
    for name, layer in weights.items():
        for head in range(3):
            assert np.allclose(column(rows, name, f"head {head}"), layer[head, 0])
        assert np.allclose(column(rows, name, "mean"), layer[:, 0].mean(axis=0))
    assert [(row["key"], row["y"], row["x"]) for row in rows[:8]] == [
        ("0", "", ""), ("1", "", ""), ("2", "0", "0"), ("3", "0", "1"), ("4", "0", "2"),
        ("5", "1", "0"), ("6", "1", "1"), ("7", "1", "2"),
    ]  # fmt: skip
    on_patches = weights["network.blocks.1.attention"][2, 0, 2:].sum()
    assert len(titles(figure)) == 2 * (1 + 3 + 1)
    assert titles(figure)[8] == f"head 2\n{on_patches:.0%} on patches"
    assert [text.get_text() for axis in figure.axes for text in axis.texts] == ["blocks.0", "blocks.1"]
    assert bars(figure) == ["attention weight"] * 2
    assert figure.get_suptitle() == "query: prefix token 0"


def test_without_prefix_tokens_the_mean_over_all_queries(draw, titles, column, softmax):
    weights = softmax(2, 6, 6)
    figure, rows = draw(
        lambda path: plot_attention_image({"a": weights}, np.ones((1, 4, 6)), (2, 3), path, title="run")
    )
    assert np.allclose(column(rows, "a", "head 1"), weights[1].mean(axis=0))
    assert titles(figure) == ["image", "head 0", "head 1", "mean"]
    assert figure.get_suptitle() == "run\nmean over all queries"


def test_a_patch_as_the_query_is_marked(draw, column, softmax):
    weights = softmax(2, 7, 7)
    figure, rows = draw(
        lambda path: plot_attention_image({"a": weights}, np.ones((1, 4, 6)), (2, 3), path, prefix_tokens=1, query=5)
    )
    assert np.allclose(column(rows, "a", "head 1"), weights[1, 5])
    assert figure.get_suptitle() == "query: patch (y, x) = (1, 1)"
    assert [patch.get_xy() for axis in figure.axes for patch in axis.patches] == [(1, 1)] * 3


def test_each_patch_colours_its_pixels(draw, softmax):
    weights, image = softmax(1, 6, 6), np.arange(24.0).reshape(1, 4, 6)
    figure, _ = draw(lambda path: plot_attention_image({"a": weights}, image, (2, 3), path))
    below, above = figure.axes[1].images
    assert np.allclose(below.get_array(), image[0] / 23)
    assert np.allclose(above.get_array(), weights[0].mean(axis=0).reshape(2, 3))
    assert below.get_extent() == above.get_extent() == [0, 3, 2, 0]


def test_three_channels_are_a_colour_image(draw, softmax):
    image = np.arange(3 * 4 * 6.0).reshape(3, 4, 6)
    figure, _ = draw(lambda path: plot_attention_image({"a": softmax(1, 6, 6)}, image, (2, 3), path))
    assert np.allclose(figure.axes[0].images[0].get_array(), image.transpose(1, 2, 0) / 71)


def test_an_image_without_contrast_is_grey(draw, softmax):
    figure, _ = draw(lambda path: plot_attention_image({"a": softmax(1, 6, 6)}, np.full((1, 4, 6), 7), (2, 3), path))
    assert (figure.axes[1].images[0].get_array() == 0.5).all()


def test_one_token_and_no_weight_at_all(draw, column):
    _, rows = draw(lambda path: plot_attention_image({"a": [[np.nan]]}, np.zeros((1, 1, 1)), (1, 1), path))
    assert column(rows, "a", "head 0").tolist() == [0.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grid": (2, 2)}, r"'a' have shape \(1, 6, 6\); a 2x2 grid with 0 prefix tokens has \(H, 4, 4\)"),
        ({"prefix_tokens": 1}, r"a 2x3 grid with 1 prefix tokens has \(H, 7, 7\)"),
        ({"grid": (0, 3)}, r"grid is \(0, 3\)"),
        ({"prefix_tokens": -1}, "prefix_tokens -1"),
        ({"query": 6}, "query is 6"),
        ({"image": np.ones((2, 4, 6))}, r"image must have shape \(1 or 3, height, width\), got \(2, 4, 6\)"),
        ({"image": np.ones((4, 6))}, r"got \(4, 6\)"),
        ({"image": np.full((1, 4, 6), np.nan)}, "image holds"),
    ],
)
def test_what_does_not_fit(options, message, softmax, tmp_path):
    arguments = {"image": np.ones((1, 4, 6)), "grid": (2, 3), "path": tmp_path / "a.png"} | options
    with pytest.raises(ValueError, match=message):
        plot_attention_image({"a": softmax(6, 6)}, **arguments)
    assert not list(tmp_path.iterdir())
