import csv

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread


@pytest.fixture
def softmax():
    """Random weights of a shape (..., N, M), each row with the sum 1."""
    generator = np.random.default_rng(0)

    def make(*shape):
        logits = np.exp(2 * generator.normal(size=shape))
        return logits / logits.sum(axis=-1, keepdims=True)

    return make


@pytest.fixture
def draw(tmp_path, monkeypatch):
    """Calls a function that plots and returns its figure and the rows of its CSV; looks at the files on the way."""
    figures = []
    savefig = Figure.savefig

    def keep(figure, *arguments, **options):
        figures.append(figure)
        savefig(figure, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", keep)

    def run(function, *arguments, **options):
        path = tmp_path / "new" / "attention.png"
        assert function(*arguments, path, **options) == [path, path.with_suffix(".csv")]
        figure = figures[-1]
        width, height = figure.get_size_inches() * 150  # pixels, before rounding
        assert imread(path).shape[:2] == pytest.approx((height, width), abs=1)
        for axis in figure.axes:  # with its words, all of it is on the picture
            box = axis.get_tightbbox()
            assert min(box.x0, box.y0) >= 0
            assert (box.x1 <= figure.bbox.x1, box.y1 <= figure.bbox.y1) == (True, True)
        return figure, list(csv.DictReader(path.with_suffix(".csv").open(newline="", encoding="utf-8")))

    return run


@pytest.fixture
def titles():
    """The titles of the panels that are drawn, in order."""
    return lambda figure: [axis.get_title() for axis in figure.axes if axis.get_title()]


@pytest.fixture
def bars():
    """The descriptions of the colour bars."""
    return lambda figure: [axis.get_ylabel() for axis in figure.axes if axis.get_label() == "<colorbar>"]


@pytest.fixture
def column():
    """One column of the CSV for a layer and a head, as numbers."""

    def read(rows, layer, head, name="weight"):
        return np.array([float(row[name]) for row in rows if (row["layer"], row["head"]) == (layer, head)])

    return read
