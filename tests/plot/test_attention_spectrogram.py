import numpy as np
import pytest

from relbias.plot import plot_attention_spectrogram

SOUND = {"sample_rate": 16000, "hop_length": 160}  # 10 ms


def test_weights_and_seconds(draw, bars, column, softmax):
    weights = {"layers.0": softmax(2, 5, 5), "layers.1": softmax(2, 5, 5)}
    picture = np.arange(8 * 20.0).reshape(8, 20)
    figure, rows = draw(lambda path: plot_attention_spectrogram(weights, picture, path, title="yes", **SOUND))
    for name, layer in weights.items():
        assert np.allclose(column(rows, name, "head 1"), layer[1].mean(axis=0))
        assert np.allclose(column(rows, name, "mean"), layer.mean(axis=(0, 1)))
    assert np.allclose(column(rows, "layers.0", "mean", "start, s"), [0, 0.04, 0.08, 0.12, 0.16])
    assert np.allclose(column(rows, "layers.0", "mean", "end, s"), [0.04, 0.08, 0.12, 0.16, 0.2])
    above, first, second = figure.axes[:3]
    assert (above.images[0].get_array() == picture).all()
    for axis in (above, first, second):
        assert axis.get_xlim() == pytest.approx((0, 0.2))
        assert axis.images[0].get_extent()[:2] == pytest.approx([0, 0.2])
    assert np.allclose(second.images[0].get_array()[0], weights["layers.1"][0].mean(axis=0))
    assert [label.get_text() for label in first.get_yticklabels()] == ["head 0", "head 1", "mean"]
    assert above.get_ylabel() == "mel band"
    assert [axis.get_title(loc="left") for axis in (first, second)] == ["layers.0", "layers.1"]
    assert second.get_xlabel() == "time, s"
    assert bars(figure) == ["spectrogram", "weight received", "weight received"]
    assert figure.get_suptitle() == "yes\nmean over all queries"


def test_one_query_one_head_one_frame(draw, column, softmax):
    weights = softmax(3, 4)
    _, rows = draw(lambda path: plot_attention_spectrogram({"a": weights}, np.ones((2, 4)), path, query=1, **SOUND))
    assert np.allclose(column(rows, "a", "head 0"), weights[1])
    _, rows = draw(lambda path: plot_attention_spectrogram({"a": [[np.nan]]}, np.ones((1, 1)), path, **SOUND))
    assert column(rows, "a", "head 0").tolist() == [0.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"spectrogram": np.ones(4)},
            r"spectrogram must be finite numbers of shape \(mels, frames\), got shape \(4,\)",
        ),
        ({"spectrogram": np.full((2, 4), -np.inf)}, "must be finite"),
        ({"spectrogram": np.ones((2, 3))}, "'a' have 4 keys for 3 frames"),
        ({"sample_rate": 0}, "sample_rate is 0, expected a positive number"),
        ({"hop_length": float("nan")}, "hop_length is nan"),
        ({"query": 4}, "query is 4"),
    ],
)
def test_what_does_not_fit(options, message, softmax, tmp_path):
    arguments = {"spectrogram": np.ones((2, 4)), "path": tmp_path / "a.png"} | SOUND | options
    with pytest.raises(ValueError, match=message):
        plot_attention_spectrogram({"a": softmax(4, 4)}, **arguments)
