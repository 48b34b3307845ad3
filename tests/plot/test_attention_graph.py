import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import LineCollection, PathCollection

import relbias
from relbias.plot import plot_attention_graph

EDGES = np.array([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 2, 0]])  # both directions of two edges, a loop, one direction
LINES = [(0, 1), (0, 3), (1, 2)]


def parts(rows, head, part):
    return [row for row in rows if row["head"] == head and row["part"] == part]


def collection(axis, kind):
    [found] = [each for each in axis.collections if type(each) is kind]
    return found


def test_nodes_and_edges(draw, titles, bars, softmax):
    weights = softmax(2, 4, 4)
    figure, rows = draw(lambda path: plot_attention_graph({"blocks.0": weights}, EDGES, path, title="a square"))
    for head, matrix in (("head 0", weights[0]), ("head 1", weights[1]), ("mean", weights.mean(axis=0))):
        nodes, lines = parts(rows, head, "node"), parts(rows, head, "edge")
        assert [(int(row["first"]), row["second"]) for row in nodes] == [(node, "") for node in range(4)]
        received = [sum(matrix[i, j] for i in range(4)) / 4 for j in range(4)]
        assert np.allclose([float(row["weight"]) for row in nodes], received)
        assert [(int(row["first"]), int(row["second"])) for row in lines] == LINES
        between = [(matrix[i, j] + matrix[j, i]) / 2 for i, j in LINES]
        assert np.allclose([float(row["weight"]) for row in lines], between)
    assert titles(figure) == ["head 0", "head 1", "mean"]
    assert bars(figure) == ["weight received"]
    shown = collection(figure.axes[1], PathCollection)
    assert np.allclose(shown.get_array(), weights[1].mean(axis=0))
    widths = np.array(collection(figure.axes[1], LineCollection).get_linewidths())
    between = np.array([weights[1, i, j] + weights[1, j, i] for i, j in LINES])
    assert np.allclose(widths / widths.max(), between / between.max())
    segments = collection(figure.axes[1], LineCollection).get_segments()
    assert np.allclose(segments, shown.get_offsets()[LINES])
    assert figure.get_suptitle().startswith("a square\nmean over all queries")


def test_one_query_is_circled(draw, softmax):
    weights = softmax(4, 4)
    figure, rows = draw(lambda path: plot_attention_graph({"a": weights}, EDGES, path, query=2, labels=list("CN$O")))
    assert np.allclose([float(row["weight"]) for row in parts(rows, "head 0", "node")], weights[2])
    colours = collection(figure.axes[0], PathCollection).get_edgecolors()
    assert [tuple(colour) == (1, 0, 0, 1) for colour in colours] == [False, False, True, False]
    assert [text.get_text() for text in figure.axes[0].texts][:4] == ["C", "N", "$", "O"]


def test_places_are_always_the_same(draw, softmax):
    places = []
    for _ in range(2):
        figure, _ = draw(lambda path: plot_attention_graph({"a": softmax(4, 4)}, EDGES, path))
        places.append(collection(figure.axes[0], PathCollection).get_offsets())
    assert (places[0] == places[1]).all()
    assert len(np.unique(places[0].round(3), axis=0)) == 4


def test_one_node_without_edges(draw, softmax):
    _, rows = draw(lambda path: plot_attention_graph({"a": [[1.0]], "b": softmax(2, 1, 1)}, np.zeros((2, 0)), path))
    assert [row["part"] for row in rows] == ["node"] * 4


def test_a_large_graph_needs_no_scipy(tmp_path):
    code = f"""
import sys; sys.modules["scipy"] = None; sys.path.insert(0, {str(Path(relbias.__path__[0]).parent)!r})
import numpy as np; from pathlib import Path; from relbias.plot.attention_graph import plot_attention_graph
for n in (30, 500):
    ring = np.stack([np.arange(n), (np.arange(n) + 1) % n])
    plot_attention_graph({{"a": np.full((n, n), 1 / n)}}, ring, Path({str(tmp_path)!r}) / "ring.png")
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": {"a": np.ones((1, 4, 3))}}, r"'a' have shape \(1, 4, 3\), expected \(H, 3, 3\)"),
        (
            {"weights": {"a": np.ones((4, 4)), "b": np.ones((3, 3))}},
            r"'b' have shape \(1, 3, 3\), expected \(H, 4, 4\)",
        ),
        ({"edges": EDGES.T}, r"edges must be \(2, E\) integers, got int64 of shape \(6, 2\)"),
        ({"edges": EDGES * 1.0}, r"got float64 of shape \(2, 6\)"),
        ({"edges": EDGES + 1}, "edges join the nodes 1 to 4, and the weights have nodes 0 to 3"),
        ({"edges": EDGES - 1}, "edges join the nodes -1 to 2"),
        ({"labels": ["C"]}, "there are 1 labels for 4 nodes"),
        ({"query": 4}, "query is 4"),
    ],
)
def test_what_does_not_fit(options, message, tmp_path):
    arguments = {"weights": {"a": np.ones((4, 4))}, "edges": EDGES, "path": tmp_path / "a.png"} | options
    with pytest.raises(ValueError, match=message):
        plot_attention_graph(**arguments)
