import numpy as np
import pytest

from relbias.plot.weights import checked, received, with_mean


def test_rows_of_nan_are_rows_without_weight():
    given = np.array([[[0.25, 0.75], [np.nan, np.nan]]])
    layers = checked({"a": given, "b": given[0]})
    assert layers["a"].tolist() == layers["b"].tolist() == [[[0.25, 0.75], [0.0, 0.0]]]
    assert np.isnan(given[0, 1]).all()  # the caller's array stays


def test_the_mean_over_queries_leaves_out_those_that_attend_to_nothing(softmax):
    weights = softmax(2, 5, 4)
    weights[1, 3:] = 0
    expected = [
        [sum(head[i][j] for i in range(n)) / n for j in range(4)] for head, n in zip(weights, (5, 3), strict=True)
    ]
    assert np.allclose(received(weights), expected)
    assert np.allclose(received(weights).sum(axis=-1), 1)
    assert received(np.zeros((1, 2, 3))).tolist() == [[0, 0, 0]]


def test_one_query(softmax):
    weights = softmax(2, 5, 4)
    assert (received(weights, 3) == weights[:, 3]).all()


@pytest.mark.parametrize("query", [-1, 5, 1.0, True])
def test_no_such_query(query, softmax):
    with pytest.raises(ValueError, match=f"query is {query}, expected the place of one of the 5 queries, 0 to 4"):
        received(softmax(2, 5, 4), query)


def test_one_head_has_no_mean(softmax):
    assert [name for name, _ in with_mean(softmax(1, 2, 2))] == ["head 0"]
    panels = dict(with_mean(softmax(3, 2, 2)))
    assert np.allclose(panels["mean"], (panels["head 0"] + panels["head 1"] + panels["head 2"]) / 3)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({}, "got an empty mapping"),
        (np.ones((1, 2, 2)), "weights must map the names of layers to arrays .*, got a ndarray"),
        ([], r"got a list; those of the first sample .* are \{record.name: record.weights\[0\] for record in captured"),
        (
            {"a": np.ones((1, 1, 2, 2))},
            r"'a' must have shape \(H, N, M\) or \(N, M\), got \(1, 1, 2, 2\); take one sample",
        ),
        ({"a": np.ones(2)}, r"got \(2,\)"),
        ({"a": np.ones((0, 2, 2))}, r"got \(0, 2, 2\)"),
        ({"a": [[0.5, np.nan]]}, "NaN in a part of a row"),
        ({"a": [[-0.5, 1.5]]}, "'a' hold negative"),
        ({"a": [[np.inf, 0]]}, "infinite"),
    ],
)
def test_what_are_no_weights(weights, message):
    with pytest.raises(ValueError, match=message):
        checked(weights)
