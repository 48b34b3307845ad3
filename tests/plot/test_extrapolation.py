from itertools import pairwise

import numpy as np
import pytest

from relbias.plot import Measurement, plot_extrapolation


def measured(encoding, seed, values, metric="accuracy"):
    return [Measurement(f"runs/{encoding}-{seed}", encoding, seed, n, metric, v) for n, v in values.items()]


ROWS = [
    *measured("shaw", 0, {16: 0.9, 24: 0.8, 32: 0.4}),
    *measured("table", 0, {16: 0.7, 32: 0.3}),
    *measured("shaw", 1, {16: 0.5, 24: 0.6, 32: 0.2}),
]


def lines(axis):
    """The lines of the encodings, and the vertical one."""
    return axis.lines[:-1], axis.lines[-1]


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_mean_band_gap_and_the_training_size(draw):
    figure, rows = draw(plot_extrapolation, ROWS, training_size=16, label="image side, pixels")
    (axis,) = figure.axes
    (shaw, table), training = lines(axis)
    np.testing.assert_allclose(shaw.get_xydata(), [(16, 0.7), (24, 0.7), (32, 0.3)])
    np.testing.assert_allclose(table.get_xydata(), [(16, 0.7), (24, np.nan), (32, 0.3)])
    band = axis.collections[0].get_paths()[0].vertices
    for size, ends in {16: [0.5, 0.9], 24: [0.6, 0.8], 32: [0.2, 0.4]}.items():
        np.testing.assert_allclose(sorted(set(band[band[:, 0] == size][:, 1])), ends)
    assert list(training.get_xdata()) == [16, 16]
    assert legend(figure) == ["shaw, 2 runs", "table", "lowest to highest", "training: 16"]
    assert shaw.get_color() == figure.legends[0].legend_handles[0].get_color() != table.get_color()
    assert axis.get_xlabel() == "image side, pixels"
    assert [label.get_text() for label in axis.get_xticklabels()] == ["16", "24", "32"]
    assert list(rows[0]) == ["run", "encoding", "seed", "size", "metric", "value"]
    assert [tuple(row.values()) for row in rows] == [
        (r.run, r.encoding, str(r.seed), str(r.size), r.metric, str(r.value)) for r in ROWS
    ]


def test_a_panel_for_every_metric_and_no_band_for_one_run(draw):
    lengths = {64: 2.0, 128: 1.5, 512: 1.0}
    rows = [*measured("t5", 0, lengths, "loss"), *measured("t5", 0, {64: 3.0, 128: 4.0}, "loss_last_quarter")]
    figure, _ = draw(plot_extrapolation, rows, training_size=64, label="length, tokens")
    assert [axis.get_ylabel() for axis in figure.axes] == ["loss", "loss last quarter"]
    np.testing.assert_allclose(figure.axes[1].lines[0].get_ydata(), [3.0, 4.0, np.nan])
    assert [lines(axis)[1].get_xdata()[0] for axis in figure.axes] == [64, 64]
    assert figure.axes[1].get_xscale() == "log"
    assert legend(figure) == ["t5", "training: 64"]


@pytest.mark.parametrize(
    ("sizes", "training_size"),
    [(range(144, 513, 16), 224), (range(100, 300), 64), ([*range(64, 70), 65536], 64), ([8, 9, 10, 400], 4096)],
)
def test_ticks_do_not_touch(sizes, training_size, draw):
    figure, _ = draw(plot_extrapolation, measured("t5", 0, dict.fromkeys(sizes, 1.0)), training_size=training_size)
    (axis,) = figure.axes
    boxes = [label.get_window_extent() for label in axis.get_xticklabels()]
    assert len(boxes) > 1
    for left, right in pairwise(boxes):
        assert left.x1 < right.x0


def test_every_name_is_in_the_legend_and_on_the_picture(draw):
    names = [f"encoding {i} (option={'x' * 12 * (i % 3)})" for i in range(11)] + [" ".join(["option=1234"] * 20)]
    rows = [row for name in names for row in measured(name, 0, {16: 1.0, 32: 0.5})]
    figure, _ = draw(plot_extrapolation, rows, training_size=16)
    assert [text.replace("\n", " ") for text in legend(figure)] == [*names, "training: 16"]
    figure.set_dpi(150)  # as it was saved
    box, panel = figure.legends[0].get_window_extent(), figure.axes[0].get_tightbbox()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1
    assert 0 <= box.y0 < box.y1 <= panel.y0
    assert figure.axes[0].get_window_extent().height > 0.4 * 150 * 3.4
    looks = {(line.get_color(), line.get_linestyle()) for line in lines(figure.axes[0])[0]}
    assert len(looks) == len(names)


def test_nothing_to_draw_writes_nothing(tmp_path):
    with pytest.raises(ValueError, match="there is nothing to draw"):
        plot_extrapolation([], tmp_path / "new" / "a.png", training_size=16)
    assert not any(tmp_path.iterdir())
