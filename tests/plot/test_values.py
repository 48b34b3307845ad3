from itertools import pairwise

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import nn

from relbias.encodings import ALiBi, AxialRoPE, Shaw, Table, create_encoding
from relbias.plot import layers, plot_bias
from relbias.plot.curve import by_distance
from relbias.plot.training import read_metrics
from relbias.relations import Grid, Hops, Sequence


def test_a_table_on_a_grid_is_the_table():
    encoding = Table(num_heads=2, head_dim=8, relation=Grid(3, 4, prefix_tokens=1))
    [layer] = layers(encoding)
    table = encoding.table.detach().double()[:, : 5 * 7].view(2, 5, 7).numpy()  # the order of Swin's tables
    assert np.allclose(layer.offsets(), table)


def test_vectors_are_drawn_as_their_norms():
    encoding = Shaw(num_heads=2, head_dim=8, relation=Grid(5, 5), max_distance=1, values=True)
    keys, values = layers(encoding)
    assert (keys.term, values.term) == ("K", "V")
    norms = encoding.keys.detach().double().norm(dim=-1).view(1, 3, 3).numpy()
    assert keys.offsets().shape == (1, 9, 9)
    assert np.allclose(keys.offsets()[:, 3:6, 3:6], norms)  # the middle; beyond it the offsets are clipped
    assert np.allclose(keys.offsets()[:, 0, 0], norms[:, 0, 0])


def test_alibi_falls_with_the_distance():
    [layer] = layers(ALiBi(num_heads=2, head_dim=8))
    distances, values = by_distance(layer)
    slopes = np.array([2.0**-4, 2.0**-8])
    assert np.allclose(values, -slopes[:, None] * np.abs(distances))


def test_minus_infinity_is_drawn_as_nothing():
    [layer] = layers(ALiBi(num_heads=2, head_dim=8, variant="causal"))
    assert not np.isinf(layer.values).any()


def test_a_rotation_is_drawn_as_its_mean_cosine():
    encoding = AxialRoPE(num_heads=2, head_dim=8, relation=Grid(4, 4))
    [layer] = layers(encoding)
    q = torch.full((1, 1, 16, 8), 8**-0.5, dtype=torch.float64)  # norm 1, equal components
    rotation = encoding(Grid(4, 4)()).rotation
    logits = rotation.rotate(q, rotation.q_angles) @ rotation.rotate(q, rotation.k_angles).mT
    assert np.allclose(layer.values, logits[0].numpy())


def test_the_distance_on_a_grid_is_euclidean():
    encoding = Table(num_heads=1, head_dim=8, relation=Grid(2, 3))
    with torch.no_grad():
        dy, dx = torch.meshgrid(torch.arange(-1, 2), torch.arange(-2, 3), indexing="ij")
        encoding.table[0] = (dy**2 + dx**2).float().sqrt().flatten()
    distances, values = by_distance(layers(encoding)[0])
    assert np.allclose(values[0], distances)
    assert np.allclose(distances**2, [0, 1, 2, 4, 5])


def test_a_sum_is_drawn_as_its_parts_and_a_shared_encoding_once():
    shared = create_encoding({"a": "table", "b": "shaw"}, 2, 8, Grid(2, 2))
    found = layers(nn.ModuleDict({"one": shared, "two": shared}))
    assert [(layer.name, layer.term) for layer in found] == [("one.encodings.a", "b"), ("one.encodings.b", "K")]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Linear(1, 1), "the model has no encoding"),
        (create_encoding("learned", 2, 8, Grid(2, 2)), "the model has 'learned'"),
        (Table(2, 8, Hops(3)), "'table' on Hops"),
    ],
)
def test_nothing_to_draw(model, message):
    with pytest.raises(ValueError, match=message):
        layers(model)


def test_an_encoding_that_needs_the_input_is_left_out():
    model = nn.ModuleList([create_encoding("wavlm", 2, 8), create_encoding("t5", 2, 8)])
    assert [layer.name for layer in layers(model)] == ["1"]
    with pytest.raises(ValueError, match="the model has 'wavlm', which gives attention no terms without a batch"):
        layers(model[0])


def test_the_csv_holds_what_the_picture_shows(tmp_path):
    encoding = Table(num_heads=2, head_dim=8, relation=Grid(2, 2))
    _, table = plot_bias(layers(encoding), tmp_path / "bias.png")
    lines = table.read_text().splitlines()
    assert lines[0] == "layer,term,head,dy or query,dx or key,value"
    assert len(lines) == 1 + 2 * 9
    assert lines[1].startswith(",b,0,-1,-1,")
    assert float(lines[1].rpartition(",")[2]) == pytest.approx(encoding.table[0, 0].item())


def test_a_sequence_is_drawn_as_its_matrix(tmp_path):
    _, table = plot_bias(layers(Table(1, 8, Sequence(max_distance=2))), tmp_path / "bias.png")
    assert len(table.read_text().splitlines()) == 1 + 64 * 64


def test_metrics_are_read_by_step(tmp_path):
    (tmp_path / "metrics.csv").write_text("epoch,step,train/loss,val/loss\n0,9,2.5,\n0,19,,2.0\n1,29,1.5,\n")
    assert read_metrics(tmp_path / "metrics.csv") == {"train/loss": [(9, 2.5), (29, 1.5)], "val/loss": [(19, 2.0)]}
    with pytest.raises(ValueError, match="there is no"):
        read_metrics(tmp_path / "absent.csv")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "nothing to draw in .*metrics.csv"),
        ("epoch,step,train/loss\n", "nothing to draw in .*metrics.csv"),
        ("epoch,step,train/loss\n0,x,1.0\n", "metrics.csv is not a metrics.csv of a training: invalid literal"),
        ("epoch,train/loss\n0,1.0\n", "metrics.csv is not a metrics.csv of a training: 'step'"),
        ("\xff", "metrics.csv is not a metrics.csv of a training: 'utf-8' codec"),
    ],
)
def test_metrics_that_cannot_be_drawn(text, message, tmp_path):
    (tmp_path / "metrics.csv").write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=message):
        read_metrics(tmp_path / "metrics.csv")


def test_the_words_of_a_picture_stay_on_it_and_apart(tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, dpi: figures.append(figure))
    encodings = {f"blocks{i}": nn.ModuleDict({"attention": Shaw(2, 8, Grid(4, 4))}) for i in range(4)}
    found = layers(nn.ModuleDict({"network": nn.ModuleDict(encodings)}))
    assert [layer.title for layer in found] == [f"blocks{i}" for i in range(4)]
    plot_bias(found, tmp_path / "bias.png")
    [figure] = figures
    FigureCanvasAgg(figure).draw()
    boxes = sorted((axis.get_tightbbox() for axis in figure.axes), key=lambda box: box.x0)
    assert boxes[0].x0 >= 0
    assert boxes[-1].x1 <= figure.bbox.x1
    assert all(left.x1 <= right.x0 for left, right in pairwise(boxes))


def test_what_needs_a_batch_is_told(capsys):
    hops = create_encoding({"offset": "shaw", "tree": "table"}, 2, 8, {"tree": Hops(3)})
    assert [layer.term for layer in layers(hops)] == ["K"]
    assert capsys.readouterr().err == (
        "left out: 'table' on Hops(max_distance=3, prefix_tokens=0, one_prefix_code=False): "
        "without a batch there are no terms to draw\n"
    )
    layers(Shaw(2, 8))
    assert capsys.readouterr().err == ""
