"""Names that are no formulas, and files that are no PNG."""

import numpy as np
import pytest
import torch

from relbias.plot import (
    Layer,
    Measurement,
    plot_attention_graph,
    plot_attention_image,
    plot_attention_sequence,
    plot_attention_spectrogram,
    plot_bias,
    plot_curve,
    plot_extrapolation,
    plot_training,
)
from relbias.relations import Sequence

NAME = "runs/$x_$"  # as a formula it would be wrong
WEIGHTS = {NAME: np.eye(2)}
LAYERS = [Layer(NAME, "b", Sequence(), np.zeros((1, 2, 2)))]
RATES = {"sample_rate": 2, "hop_length": 1}
FIGURES = {
    "bias": lambda path: plot_bias(LAYERS, path, NAME),
    "curve": lambda path: plot_curve(LAYERS, path, NAME),
    "training": lambda path: plot_training({NAME: {"train/loss": [(0, 2.0), (1, 1.0)]}}, path),
    "extrapolation": lambda path: plot_extrapolation(
        [Measurement(NAME, NAME, 0, 1, NAME, 1.0)], path, training_size=1, label=NAME
    ),
    "sequence": lambda path: plot_attention_sequence(WEIGHTS, path, tokens=["$x_$", "$y_$"], title=NAME),
    "image": lambda path: plot_attention_image(WEIGHTS, np.zeros((1, 2, 2)), (1, 2), path, title=NAME),
    "graph": lambda path: plot_attention_graph(WEIGHTS, [[0], [1]], path, labels=["$x_$", "$y_$"], title=NAME),
    "spectrogram": lambda path: plot_attention_spectrogram(WEIGHTS, np.zeros((1, 2)), path, **RATES, title=NAME),
}


@pytest.mark.parametrize("figure", FIGURES)
def test_dollar_signs_begin_no_formula(figure, tmp_path):
    path = tmp_path / "figure.png"
    assert FIGURES[figure](str(path)) == [path, tmp_path / "figure.csv"]
    assert path.stat().st_size > 0
    assert NAME in path.with_suffix(".csv").read_text()


@pytest.mark.parametrize("name", ["figure", "figure.csv", "figure.pdf"])
@pytest.mark.parametrize("figure", FIGURES)
def test_other_files_are_refused_before_anything_is_written(figure, name, tmp_path):
    path = tmp_path / "new" / name
    with pytest.raises(ValueError, match=r"expected a file whose name ends in \.png"):
        FIGURES[figure](path)
    assert not path.parent.exists()


@pytest.mark.parametrize("convert", [lambda x: x.requires_grad_(), torch.Tensor.bfloat16])
def test_tensors_as_they_come(convert, tmp_path):
    weights, images = (convert(torch.tensor(values)) for values in ([[[0.5, 0.5], [0.0, 1.0]]], [[[0.0, 1.0]]]))
    expected = plot_attention_image({"a": weights.tolist()}, images.tolist(), (1, 2), tmp_path / "lists.png")
    found = plot_attention_image({"a": weights}, images, (1, 2), tmp_path / "tensors.png")
    plot_attention_spectrogram({"a": weights}, images[0], tmp_path / "spectrogram.png", **RATES)
    assert [file.read_bytes() for file in found] == [file.read_bytes() for file in expected]
