"""Codes of grids, against loops over pairs of tokens."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relbias.relations import Grid


def loop(height: int, width: int, prefix: int, limits: tuple[int, int]) -> torch.Tensor:
    """The codes, pair by pair: patches first, then prefix to patch, patch to prefix, prefix to prefix."""
    a, b = limits
    patch_codes, tokens = (2 * a + 1) * (2 * b + 1), prefix + height * width
    codes = torch.empty(tokens, tokens, dtype=torch.long)
    for i in range(tokens):
        for j in range(tokens):
            if i < prefix and j < prefix:
                code = patch_codes + 2 * prefix + i * prefix + j
            elif i < prefix:
                code = patch_codes + i
            elif j < prefix:
                code = patch_codes + prefix + j
            else:
                (yi, xi), (yj, xj) = divmod(i - prefix, width), divmod(j - prefix, width)
                dy, dx = max(-a, min(a, yi - yj)), max(-b, min(b, xi - xj))
                code = (dy + a) * (2 * b + 1) + dx + b
            codes[i, j] = code
    return codes


SIZES = [(1, 1), (1, 4), (3, 1), (2, 3), (4, 4)]


@pytest.mark.parametrize(("height", "width"), SIZES)
@pytest.mark.parametrize("prefix", [0, 1, 3])
@pytest.mark.parametrize("limit", [None, 0, 1, 9])
def test_codes(height, width, prefix, limit):
    grid = Grid(height, width, prefix, limit)
    index, limits = grid(), (height - 1, width - 1) if limit is None else (limit, limit)
    codes, tokens = index.codes(), prefix + height * width
    assert index.shape == (tokens, tokens)
    assert codes.dtype == torch.int64
    assert torch.equal(codes[0, 0], loop(height, width, prefix, limits))
    patch_codes = (2 * limits[0] + 1) * (2 * limits[1] + 1)
    assert grid.num_codes == index.num_codes == patch_codes + 2 * prefix + prefix**2
    assert int(codes.max()) < grid.num_codes


@pytest.mark.parametrize(("height", "width"), SIZES)
@pytest.mark.parametrize("prefix", [0, 1, 3])
def test_codes_tell_apart_what_differs(height, width, prefix):
    """Two pairs share a code exactly if they are of the same kind and offset."""
    codes, meaning = Grid(height, width, prefix)().codes()[0, 0].tolist(), {}
    for i, row in enumerate(codes):
        for j, code in enumerate(row):
            if i >= prefix and j >= prefix:
                (yi, xi), (yj, xj) = divmod(i - prefix, width), divmod(j - prefix, width)
                pair = ("patches", yi - yj, xi - xj)
            else:
                pair = (i if i < prefix else "patch", j if j < prefix else "patch")
            assert meaning.setdefault(code, pair) == pair
    assert len(set(meaning.values())) == len(meaning)
    assert len(meaning) == Grid(height, width, prefix).num_codes  # no row of a table is dead


@pytest.mark.parametrize("prefix", [0, 1, 3])
@pytest.mark.parametrize("smaller", [(1, 1), (2, 5), (4, 2), (4, 5)])
def test_a_smaller_grid_has_the_same_codes(prefix, smaller):
    """Its codes are those of its tokens in the corner of the whole grid."""
    grid = Grid(4, 5, prefix)
    height, width = smaller
    patches = [prefix + y * 5 + x for y in range(height) for x in range(width)]
    tokens = torch.tensor([*range(prefix), *patches])
    index = grid(height, width)
    assert index.num_codes == grid.num_codes
    assert torch.equal(index.codes()[0, 0], grid().codes()[0, 0][tokens][:, tokens])


@pytest.mark.parametrize("larger", [(5, 5), (4, 6), (20, 20)])
def test_a_larger_grid_names_resize(larger):
    with pytest.raises(ValueError, match=rf"{larger[0]}x{larger[1]} grid .* Grid\(4, 5\).*`resize`"):
        Grid(4, 5)(*larger)


def test_a_bounded_grid_takes_any_size():
    index = Grid(4, 5, 1, max_distance=2)(7, 3)
    assert torch.equal(index.codes()[0, 0], loop(7, 3, 1, (2, 2)))
    assert index.num_codes == Grid(4, 5, 1, max_distance=2).num_codes


def test_resized_has_codes_for_the_new_grid():
    grid = Grid(4, 5, 1).resized(20, 18)
    assert grid == Grid(20, 18, 1)
    assert grid().shape == (361, 361)


@pytest.mark.parametrize("prefix", [0, 1, 3])
@pytest.mark.parametrize("limit", [None, 1])
def test_transposed(prefix, limit):
    index = Grid(3, 4, prefix, limit)()
    assert torch.equal(index.T.codes(), index.codes().mT)
    assert torch.equal(index.T.codes(slice(2, 7)), index.codes().mT[:, :, 2:7])
    assert torch.equal(index.T.T.codes(), index.codes())


@pytest.mark.parametrize("prefix", [0, 2])
def test_rows_are_part_of_the_codes(prefix):
    index = Grid(3, 4, prefix)()
    for rows in (slice(0, 1), slice(1, 5), slice(6, None), slice(0, 0)):
        assert torch.equal(index.codes(rows), index.codes()[:, :, rows])


def test_clip_has_the_codes_of_a_bounded_grid():
    assert torch.equal(Grid(3, 4, 1)().clip(1).codes(), Grid(3, 4, 1, max_distance=1)().codes())
    wide = Grid(3, 4, 1)().clip(9)
    assert torch.equal(wide.codes(), Grid(3, 4, 1, max_distance=9)().codes())
    assert wide.num_codes == 19 * 19 + 3


def test_coordinates_are_row_by_row_without_prefix_tokens():
    assert Grid(2, 3, 2)().coordinates().tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]


def test_no_diagonals():
    assert Grid(2, 3)().diagonals() is None


def test_nothing_of_size_n_by_m_is_made():
    index = Grid(300, 300, 1)()  # 90,001 tokens: its codes would take 65 GB
    assert index.shape == (90_001, 90_001)
    assert index.T.codes(slice(90_000, None)).shape == (1, 1, 1, 90_001)
    evaluated = []
    mapped = index.map(lambda dy, dx: evaluated.append(dy.numel()) or dy * 0, 1)
    assert mapped.codes(slice(90_000, None)).shape == (1, 1, 1, 90_001)
    assert evaluated == [599 * 599]  # once for each offset


@given(
    height=st.integers(1, 5),
    width=st.integers(1, 5),
    prefix=st.integers(0, 3),
    limit=st.none() | st.integers(0, 5),
    data=st.data(),
)
@settings(max_examples=60, deadline=None)
def test_equals_the_loop_and_only_offsets_count(height, width, prefix, limit, data):
    grid = Grid(height, width, prefix, limit)
    codes = grid().codes()[0, 0]
    limits = (height - 1, width - 1) if limit is None else (limit, limit)
    assert torch.equal(codes, loop(height, width, prefix, limits))
    # Moving both patches by the same number of rows and columns changes nothing.
    dy, dx = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
    places = [(y, x) for y in range(height - dy) for x in range(width - dx)]
    here = torch.tensor([prefix + y * width + x for y, x in places])
    there = here + dy * width + dx
    assert torch.equal(codes[here][:, here], codes[there][:, there])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 3), "height must be an integer of at least 1, got 0"),
        ((3, 0), "width must be an integer of at least 1, got 0"),
        ((3, 2.0), "width must be an integer of at least 1, got 2.0"),
        ((3, 3, -1), "prefix_tokens must be an integer of at least 0, got -1"),
        ((3, 3, 0, -1), "max_distance must be an integer of at least 0, got -1"),
        (("3", 3), "height must be an integer of at least 1, got '3'"),
    ],
)
def test_bad_grids(arguments, message):
    with pytest.raises(ValueError, match=message):
        Grid(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((2,), "both a height and a width, got height=2 and width=None"),
        ((None, 2), "both a height and a width"),
        ((0, 2), "height must be an integer of at least 1, got 0"),
        ((2, -2), "width must be an integer of at least 1, got -2"),
    ],
)
def test_bad_calls(arguments, message):
    with pytest.raises(ValueError, match=message):
        Grid(3, 3)(*arguments)


@pytest.mark.parametrize("prefix", [0, 1, 2])
@pytest.mark.parametrize("limit", [None, 1])
@pytest.mark.parametrize("one", [False, True])
def test_map_gives_the_function_of_each_offset(prefix, limit, one):
    index, height, width = Grid(3, 4, prefix, limit)(), 3, 4
    mapped = index.map(lambda dy, dx: (dy + 3) * 10 + dx + 4, 70, one_prefix_code=one)
    clipped = 9 if limit is None else limit
    tokens = prefix + height * width
    expected = torch.empty(tokens, tokens, dtype=torch.long)
    kinds = loop(height, width, prefix, (0, 0)) - 1 + 70  # with one patch code those of prefix tokens start at 1
    for i in range(tokens):
        for j in range(tokens):
            if min(i, j) < prefix:
                expected[i, j] = 70 if one else kinds[i, j]
            else:
                (yi, xi), (yj, xj) = divmod(i - prefix, width), divmod(j - prefix, width)
                dy, dx = (max(-clipped, min(clipped, d)) for d in (yi - yj, xi - xj))
                expected[i, j] = (dy + 3) * 10 + dx + 4
    assert torch.equal(mapped.codes()[0, 0], expected)
    assert torch.equal(mapped.T.codes()[0, 0], expected.T)
    assert torch.equal(mapped.codes(slice(1, 3))[0, 0], expected[1:3])
    assert mapped.num_codes == 70 + (min(prefix, 1) if one else 2 * prefix + prefix**2)
    assert mapped.shape == index.shape
