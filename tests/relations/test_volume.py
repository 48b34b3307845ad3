"""Codes of volumes, against loops over pairs of tokens."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import relbias as rb
from relbias.relations import Grid, Volume


def loop(sizes: tuple[int, int, int], prefix: int, limits: tuple[int, int, int]) -> torch.Tensor:
    """The codes, pair by pair: patches first, then prefix to patch, patch to prefix, prefix to prefix."""
    depth, height, width = sizes
    places = [(z, y, x) for z in range(depth) for y in range(height) for x in range(width)]
    patch_codes, tokens = 1, prefix + len(places)
    for limit in limits:
        patch_codes *= 2 * limit + 1
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
                code = 0
                for query, key, limit in zip(places[i - prefix], places[j - prefix], limits, strict=True):
                    code = code * (2 * limit + 1) + max(-limit, min(limit, query - key)) + limit
            codes[i, j] = code
    return codes


SIZES = [(1, 1, 1), (3, 1, 1), (1, 2, 3), (2, 3, 2)]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("prefix", [0, 1, 3])
@pytest.mark.parametrize("limit", [None, 0, 1, 9])
def test_codes(sizes, prefix, limit):
    volume = Volume(*sizes, prefix, limit)
    limits = tuple(size - 1 for size in sizes) if limit is None else (limit,) * 3
    index = volume()
    codes = index.codes()
    assert index.shape == codes.shape[2:]
    assert codes.dtype == torch.int64
    assert torch.equal(codes[0, 0], loop(sizes, prefix, limits))
    assert volume.num_codes == index.num_codes > int(codes.max())


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("prefix", [0, 2])
def test_codes_tell_apart_what_differs(sizes, prefix):
    """Two pairs share a code exactly if they are of the same kind and offset, and no row of a table is dead."""
    depth, height, width = sizes
    places = [(z, y, x) for z in range(depth) for y in range(height) for x in range(width)]
    volume, meaning = Volume(*sizes, prefix), {}
    for i, row in enumerate(volume().codes()[0, 0].tolist()):
        for j, code in enumerate(row):
            if i >= prefix and j >= prefix:
                pair = tuple(a - b for a, b in zip(places[i - prefix], places[j - prefix], strict=True))
            else:
                pair = (i if i < prefix else "patch", j if j < prefix else "patch")
            assert meaning.setdefault(code, pair) == pair
    assert len(set(meaning.values())) == len(meaning) == volume.num_codes


@pytest.mark.parametrize("prefix", [0, 2])
@pytest.mark.parametrize("smaller", [(1, 1, 1), (2, 3, 1), (1, 4, 2), (3, 4, 2)])
def test_a_smaller_volume_has_the_same_codes(prefix, smaller):
    """Its codes are those of its tokens in the corner of the whole volume."""
    volume, (depth, height, width) = Volume(3, 4, 2, prefix), smaller
    patches = [prefix + (z * 4 + y) * 2 + x for z in range(depth) for y in range(height) for x in range(width)]
    tokens = torch.tensor([*range(prefix), *patches])
    index = volume(*smaller)
    assert index.num_codes == volume.num_codes
    assert torch.equal(index.codes()[0, 0], volume().codes()[0, 0][tokens][:, tokens])


@pytest.mark.parametrize("larger", [(4, 4, 2), (3, 5, 2), (3, 4, 3)])
def test_a_larger_volume_is_refused(larger):
    named = "x".join(map(str, larger))
    with pytest.raises(ValueError, match=rf"{named} volume .* Volume\(3, 4, 2\).*`resize`"):
        Volume(3, 4, 2)(*larger)
    assert torch.equal(Volume(3, 4, 2, 1, 1)(*larger).codes()[0, 0], loop(larger, 1, (1, 1, 1)))
    assert Volume(3, 4, 2, 1).resized(*larger) == Volume(*larger, 1)


@pytest.mark.parametrize("prefix", [0, 2])
def test_transposed_and_rows_and_clip(prefix):
    index = Volume(2, 3, 2, prefix)()
    assert torch.equal(index.T.codes(), index.codes().mT)
    assert torch.equal(index.T.T.codes(), index.codes())
    for rows in (slice(0, 1), slice(1, 5), slice(6, None), slice(0, 0)):
        assert torch.equal(index.codes(rows), index.codes()[:, :, rows])
        assert torch.equal(index.T.codes(rows), index.codes().mT[:, :, rows])
    assert torch.equal(index.clip(1).codes(), Volume(2, 3, 2, prefix, max_distance=1)().codes())


def test_coordinates_are_slice_by_slice_without_prefix_tokens():
    expected = [[z, y, x] for z in range(2) for y in range(1) for x in range(3)]
    assert Volume(2, 1, 3, 2)().coordinates().tolist() == expected


@pytest.mark.parametrize("prefix", [0, 2])
def test_one_slice_has_the_codes_of_a_grid(prefix):
    assert torch.equal(Volume(1, 3, 4, prefix)().codes(), Grid(3, 4, prefix)().codes())


def test_nothing_of_size_n_by_m_is_made():
    index = Volume(100, 30, 30, 1)()  # 90,001 tokens: its codes would take 65 GB
    assert index.shape == (90_001, 90_001)
    assert index.T.codes(slice(90_000, None)).shape == (1, 1, 1, 90_001)


@given(sizes=st.tuples(*[st.integers(1, 3)] * 3), prefix=st.integers(0, 2), limit=st.none() | st.integers(0, 3))
@settings(max_examples=30, deadline=None)
def test_equals_the_loop(sizes, prefix, limit):
    limits = tuple(size - 1 for size in sizes) if limit is None else (limit,) * 3
    assert torch.equal(Volume(*sizes, prefix, limit)().codes()[0, 0], loop(sizes, prefix, limits))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 3, 3), "Volume's depth must be an integer of at least 1, got 0"),
        ((3, 3, 2.0), "Volume's width must be an integer of at least 1, got 2.0"),
        ((3, 3, 3, -1), "prefix_tokens must be an integer of at least 0, got -1"),
        ((3, 3, 3, 0, -1), "max_distance must be an integer of at least 0, got -1"),
    ],
)
def test_bad_volumes(arguments, message):
    with pytest.raises(ValueError, match=message):
        Volume(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((2,), "a depth, a height and a width, got depth=2, height=None and width=None"),
        ((2, 2), "a depth, a height and a width"),
        ((None, 2, 2), "a depth, a height and a width"),
        ((0, 2, 2), "a volume's depth must be an integer of at least 1, got 0"),
    ],
)
def test_bad_calls(arguments, message):
    with pytest.raises(ValueError, match=message):
        Volume(3, 3, 3)(*arguments)


def test_layers_infer_its_index():
    volume = Volume(2, 3, 2, prefix_tokens=1)
    attention = rb.RelativeAttention(
        12, 2, {"table": "table", "turn": "rope_axial"}, dict.fromkeys(("table", "turn"), volume)
    )
    x = torch.randn(1, 13, 12)
    given = {"table": volume(), "turn": volume()}
    assert torch.equal(attention(x), attention(x, index=given))
    with pytest.raises(ValueError, match=r"has 13 tokens, got 12 queries.*index=volume\(depth, height, width\)"):
        attention(x[:, 1:])


def test_spectrograms_are_grids():
    """Frequency by time: a table has a number for every pair of a shift in frequency and one in time."""
    spectrogram = Grid(8, 20)
    attention = rb.RelativeAttention(12, 2, "table", spectrogram)
    torch.nn.init.normal_(attention.encoding.table)
    bias = attention.encoding.table[:, spectrogram().codes()[0, 0]].unflatten(1, (8, 20)).unflatten(3, (8, 20))
    assert torch.equal(bias[:, 3, 11, 1, 15], bias[:, 7, 4, 5, 8])  # two up, four earlier
    assert attention(torch.randn(1, 160, 12)).shape == (1, 160, 12)
