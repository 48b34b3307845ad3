"""Codes given pair by pair, and hops in a graph with their reserved codes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relbias.relations import Hops, Pairs

INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("shape", [(2, 3), (4, 2, 3), (4, 5, 2, 3), (0, 0), (1, 1), (2, 0), (4, 0, 3)])
def test_pairs_gives_the_codes_it_was_given(shape, dtype):
    given_codes = torch.randint(7, shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    index = Pairs(7)(given_codes)
    codes = index.codes()
    assert index.shape == shape[-2:]
    assert index.num_codes == 7
    assert codes.dtype == torch.int64
    expected = given_codes.long()
    expected = expected[None, None] if len(shape) == 2 else expected[:, None] if len(shape) == 3 else expected
    assert torch.equal(codes, expected)
    assert torch.equal(index.codes(slice(1, 2)), expected[:, :, 1:2])
    assert index.diagonals() is None


def test_pairs_transposed():
    codes = torch.randint(7, (2, 4, 4), generator=torch.Generator().manual_seed(0))
    assert torch.equal(Pairs(7)(codes).T.codes(), codes[:, None].mT)
    with pytest.raises(ValueError, match="only a square index"):
        _ = Pairs(7)(codes[:, :3]).T


@pytest.mark.parametrize(("wrong", "message"), [(3, "from 0 to 2, got 3"), (-1, "from 0 to 2, got -1")])
def test_pairs_out_of_range(wrong, message):
    codes = torch.zeros(2, 2, 2, dtype=torch.int8)
    codes[1, 0, 1] = wrong
    with pytest.raises(ValueError, match=message):
        Pairs(3)(codes)


@pytest.mark.parametrize("relation", [Pairs(3), Hops(3)])
@pytest.mark.parametrize(
    ("values", "message"),
    [
        (torch.zeros(2, 2), "must be integers, got torch.float32"),
        (torch.zeros(2, 2, dtype=torch.bool), "must be integers, got torch.bool"),
        (torch.zeros(2, dtype=torch.long), r"must have shape \(N, M\).*got \(2,\)"),
        (torch.zeros(1, 1, 1, 2, 2, dtype=torch.long), r"got \(1, 1, 1, 2, 2\)"),
    ],
)
def test_bad_values(relation, values, message):
    with pytest.raises(ValueError, match=message):
        relation(values)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Pairs(0), "num_codes must be an integer of at least 1, got 0"),
        (lambda: Pairs(2.0), "num_codes must be an integer of at least 1, got 2.0"),
        (lambda: Hops(-1), "max_distance must be an integer of at least 0, got -1"),
        (lambda: Hops(3, -1), "prefix_tokens must be an integer of at least 0, got -1"),
        (lambda: Hops(32767), "at most 32766, got 32767"),
    ],
)
def test_bad_relations(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_hops_below_minus_one():
    with pytest.raises(ValueError, match="-1 where there is no path; got -2"):
        Hops(3)(torch.tensor([[0, -2], [1, 0]]))


def loop(distances: torch.Tensor, limit: int, prefix: int) -> torch.Tensor:
    """The codes of one graph: distances, far, unreachable, then prefix to node, node to prefix, prefix to prefix."""
    n, m = distances.shape[0] + prefix, distances.shape[1] + prefix
    first, codes = limit + 3, torch.empty(n, m, dtype=torch.long)
    for i in range(n):
        for j in range(m):
            if i < prefix and j < prefix:
                codes[i, j] = first + 2 * prefix + i * prefix + j
            elif i < prefix:
                codes[i, j] = first + i
            elif j < prefix:
                codes[i, j] = first + prefix + j
            else:
                distance = int(distances[i - prefix, j - prefix])
                codes[i, j] = limit + 2 if distance == -1 else min(distance, limit + 1)
    return codes


@pytest.mark.parametrize("prefix", [0, 1, 3])
@pytest.mark.parametrize("limit", [0, 1, 4, 126, 127, 32766])
@pytest.mark.parametrize("shape", [(4, 4), (2, 5), (1, 1), (0, 0)])
def test_hops(shape, limit, prefix):
    hops = Hops(limit, prefix)
    distances = torch.randint(-1, limit + 4, shape, generator=torch.Generator().manual_seed(0))
    index = hops(distances)
    expected = loop(distances, limit, prefix)
    assert index.shape == tuple(expected.shape)
    assert index.codes().dtype == torch.int64
    assert torch.equal(index.codes()[0, 0], expected)
    assert hops.num_codes == index.num_codes == limit + 3 + 2 * prefix + prefix**2
    for rows in (slice(1, 3), slice(0, 2), slice(2, 5), slice(4, None)):  # of prefix tokens, of both and of others
        assert torch.equal(index.codes(rows)[0, 0], expected[rows])


def test_every_code_of_hops_occurs_and_means_one_thing():
    codes = Hops(2, prefix_tokens=2)(torch.tensor([[0, 1, 2, 3, 9, -1]] * 2)).codes()
    assert sorted(set(codes.flatten().tolist())) == list(range(Hops(2, 2).num_codes))


@pytest.mark.parametrize(("limit", "dtype"), [(0, torch.int8), (126, torch.int8), (127, torch.int16)])
@pytest.mark.parametrize("given_dtype", [torch.int16, torch.int32, torch.int64])
def test_hops_are_stored_in_the_smallest_dtype(limit, dtype, given_dtype):
    distances = torch.tensor([[0, limit, limit + 1, 20_000, -1]], dtype=given_dtype)
    index = Hops(limit)(distances)
    assert index.distances.dtype == dtype
    assert index.codes()[0, 0, 0].tolist() == [0, limit, limit + 1, limit + 1, limit + 2]


@pytest.mark.parametrize("limit", [20, 126, 127, 200, 300])
@pytest.mark.parametrize("given_dtype", INTEGERS)
def test_hops_given_in_a_narrow_dtype(limit, given_dtype):
    """What a data set stores in 8 bits fits any max_distance."""
    top = min(torch.iinfo(given_dtype).max, 1000)
    index = Hops(limit)(torch.tensor([[0, 1, top]], dtype=given_dtype))
    assert index.codes()[0, 0, 0].tolist() == [0, 1, min(top, limit + 1)]


@pytest.mark.parametrize("prefix", [0, 2])
def test_hops_transposed(prefix):
    distances = torch.randint(-1, 5, (3, 4, 4), generator=torch.Generator().manual_seed(0))
    index = Hops(3, prefix)(distances)
    assert torch.equal(index.T.codes(), index.codes().mT)
    assert torch.equal(index.T.codes(slice(1, 4)), index.codes().mT[..., 1:4, :])
    assert torch.equal(index.T.T.codes(), index.codes())
    with pytest.raises(ValueError, match="only a square index"):
        _ = Hops(3, prefix)(distances[:, :3]).T


def test_a_batch_of_graphs_with_heads():
    distances = torch.randint(-1, 5, (2, 3, 4, 4), generator=torch.Generator().manual_seed(0))
    codes = Hops(3, 1)(distances).codes()
    assert codes.shape == (2, 3, 5, 5)
    for batch in range(2):
        for head in range(3):
            assert torch.equal(codes[batch, head], loop(distances[batch, head], 3, 1))


@given(
    n=st.integers(0, 5),
    m=st.integers(0, 5),
    limit=st.integers(0, 140),
    prefix=st.integers(0, 2),
    seed=st.integers(0, 99),
)
@settings(max_examples=50, deadline=None)
def test_hops_equals_the_loop(n, m, limit, prefix, seed):
    distances = torch.randint(-1, 160, (n, m), generator=torch.Generator().manual_seed(seed))
    assert torch.equal(Hops(limit, prefix)(distances).codes()[0, 0], loop(distances, limit, prefix))
