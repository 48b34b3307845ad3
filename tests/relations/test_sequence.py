"""Codes of sequences, against loops over pairs of positions."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relbias.relations import Sequence


def loop(n: int, m: int, limit: int, queries: list[int] | None = None, keys: list[int] | None = None) -> torch.Tensor:
    """The codes, pair by pair; without positions the queries are the last n of m."""
    queries = [i + m - n for i in range(n)] if queries is None else queries
    keys = list(range(m)) if keys is None else keys
    return torch.tensor([[max(-limit, min(limit, j - i)) + limit for j in keys] for i in queries]).view(n, m)


LENGTHS = [(1, 1), (4, 4), (2, 5), (1, 6), (5, 2), (0, 0), (0, 3), (3, 0)]


@pytest.mark.parametrize(("n", "m"), LENGTHS)
@pytest.mark.parametrize("limit", [0, 2, 50])
def test_codes(n, m, limit):
    index = Sequence(limit)(n, m)
    codes = index.codes()
    assert index.shape == (n, m)
    assert index.num_codes == Sequence(limit).num_codes == 2 * limit + 1
    assert codes.dtype == torch.int64
    assert codes.shape == (1, 1, n, m)
    assert torch.equal(codes[0, 0], loop(n, m, limit))


@pytest.mark.parametrize(("n", "m"), LENGTHS)
def test_one_hot_tables_read_the_code_of_the_true_offset(n, m):
    size = n + m + 1  # row r of the table marks offset r - size
    one_hot = torch.eye(2 * size + 1)
    read = one_hot[Sequence(size)(n, m).codes()[0, 0]]
    for i in range(n):
        for j in range(m):
            assert read[i, j].nonzero().item() - size == j - (i + m - n)


def test_length_defaults_to_as_many_keys_as_queries():
    assert Sequence(3)(4).shape == (4, 4)
    assert torch.equal(Sequence(3)(4).codes(), Sequence(3)(4, 4).codes())


def test_explicit_positions_one_row_and_batched():
    queries, keys = torch.tensor([7, 3]), torch.tensor([[0, 7, 9], [4, 4, 1]])
    index = Sequence(4)(2, 3, queries, keys)
    assert index.codes().shape == (2, 1, 2, 3)
    for batch in range(2):
        assert torch.equal(index.codes()[batch, 0], loop(2, 3, 4, queries.tolist(), keys[batch].tolist()))
    assert index.diagonals() is None
    itself = Sequence(9)(3, positions=keys.int())
    assert torch.equal(itself.codes()[1, 0], loop(3, 3, 9, keys[1].tolist(), keys[1].tolist()))


def test_default_positions_are_the_last():
    positions = Sequence(9)(2, 5, torch.tensor([3, 4]), torch.arange(5))
    assert torch.equal(Sequence(9)(2, 5).codes(), positions.codes())
    queries, keys = Sequence()(2, 5).positions()
    assert (queries.tolist(), keys.tolist()) == ([[3, 4]], [[0, 1, 2, 3, 4]])


@pytest.mark.parametrize("index", [Sequence(2)(4, 6), Sequence(2)(6, 4), Sequence(2)(3, positions=torch.arange(3) * 2)])
def test_rows_are_part_of_the_codes(index):
    codes = index.codes()
    for rows in (slice(0, 1), slice(1, 3), slice(2, None), slice(0, 0)):
        assert torch.equal(index.codes(rows), codes[:, :, rows])


@pytest.mark.parametrize(("n", "m"), LENGTHS)
@pytest.mark.parametrize("transposed", [False, True])
def test_diagonals_are_the_codes(n, m, transposed):
    index = Sequence(2)(n, m).T if transposed else Sequence(2)(n, m)
    diagonals, codes = index.diagonals(), index.codes()[0, 0]
    assert diagonals.shape == (max(n + m - 1, 0),)
    for i in range(n):
        for j in range(m):
            assert codes[i, j] == diagonals[j - i + n - 1]


@pytest.mark.parametrize(("n", "m"), LENGTHS)
def test_transposed_codes_are_those_of_the_opposite_offset(n, m):
    index = Sequence(3)(n, m)
    assert torch.equal(index.T.codes(), 6 - index.codes())
    assert torch.equal(index.T.T.codes(), index.codes())
    assert index.T.shape == (n, m)
    if n == m:
        assert torch.equal(index.T.codes(), index.codes().mT)


def test_transposed_with_positions():
    positions = torch.tensor([[5, 1, 2], [0, 0, 9]])
    index = Sequence(4)(3, positions=positions)
    assert torch.equal(index.T.codes(), index.codes().mT)


def test_mapped_codes():
    index = Sequence()(3, 5)
    mapped = index.map(lambda offsets: offsets.abs().clamp(max=2), 3)
    assert (mapped.shape, mapped.num_codes) == ((3, 5), 3)
    assert torch.equal(mapped.codes(), index.differences().abs().clamp(max=2))
    assert torch.equal(mapped.codes(slice(1, 2)), mapped.codes()[:, :, 1:2])
    assert torch.equal(mapped.diagonals(), index.offsets().abs().clamp(max=2))
    signs = index.map(lambda offsets: offsets.sign() + 1, 3)
    assert torch.equal(signs.T.codes(), 2 - signs.codes())


def test_clip_keeps_the_smaller_limit():
    assert Sequence()(4).clip(2).num_codes == 5
    assert Sequence(3)(4).clip(9).num_codes == 7
    assert torch.equal(Sequence()(4).clip(2).codes(), Sequence(2)(4).codes())


def test_nothing_of_size_n_by_m_is_made():
    index = Sequence(16)(100_000, 100_000)  # its codes would take 80 GB
    assert index.shape == (100_000, 100_000)
    assert index.T.clip(4).codes(slice(99_999, None)).shape == (1, 1, 1, 100_000)
    assert index.diagonals().shape == (199_999,)
    assert index.map(torch.abs, 17).diagonals().shape == (199_999,)


@given(
    limit=st.integers(0, 8),
    queries=st.lists(st.integers(-20, 20), max_size=6),
    keys=st.lists(st.integers(-20, 20), max_size=6),
    shift=st.integers(-(2**40), 2**40),
)
@settings(max_examples=60, deadline=None)
def test_any_positions_equal_the_loop_and_only_offsets_count(limit, queries, keys, shift):
    n, m = len(queries), len(keys)
    q, k = torch.tensor(queries, dtype=torch.long), torch.tensor(keys, dtype=torch.long)
    codes = Sequence(limit)(n, m, q, k).codes()[0, 0]
    assert torch.equal(codes, loop(n, m, limit, queries, keys))
    assert torch.equal(codes, Sequence(limit)(n, m, q + shift, k + shift).codes()[0, 0])


@given(n=st.integers(1, 8), extra=st.integers(0, 8), limit=st.integers(0, 8))
@settings(max_examples=40, deadline=None)
def test_decoding_reads_the_last_rows(n, extra, limit):
    full = Sequence(limit)(n + extra).codes()
    assert torch.equal(Sequence(limit)(n, n + extra).codes(), full[:, :, extra:])


def test_unbounded_offsets_have_no_codes():
    assert Sequence().num_codes is None
    assert Sequence()(3).num_codes is None
    with pytest.raises(ValueError, match=r"Sequence\(max_distance=128\)"):
        Sequence()(3).codes()
    with pytest.raises(ValueError, match="no codes"):
        Sequence()(3).diagonals()


@pytest.mark.parametrize("limit", [-1, 1.5, "3", True])
def test_bad_limit(limit):
    with pytest.raises(ValueError, match="max_distance must be an integer of at least 0, got"):
        Sequence(limit)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1,), "got -1 queries and -1 keys"),
        ((2, -3), "got 2 queries and -3 keys"),
        ((2, 2, torch.zeros(3, dtype=torch.long)), r"positions must have shape \(2,\) or \(B, 2\), got \(3,\)"),
        ((2, 2, torch.zeros(1, 1, 2, dtype=torch.long)), r"got \(1, 1, 2\)"),
        ((2, 2, torch.zeros(2)), "positions must be integers, got torch.float32"),
        ((2, 2, torch.zeros(2, dtype=torch.bool)), "positions must be integers, got torch.bool"),
        ((2, 3, torch.zeros(2, dtype=torch.long)), "need key_positions"),
        ((2, 2, None, torch.zeros(2, dtype=torch.long)), "without positions"),
        ((2, 2, torch.zeros(2, 2, dtype=torch.long), torch.zeros(3, 2, dtype=torch.long)), "batch of 2 and .* of 3"),
    ],
)
def test_bad_calls(arguments, message):
    with pytest.raises(ValueError, match=message):
        Sequence(2)(*arguments)
