"""Relations of groups of heads."""

from __future__ import annotations

import pytest
import torch

from relbias.encodings import Table
from relbias.relations import HeadGroups, Hops, Pairs, Sequence

HOPS, PAIRS = Hops(2), Pairs(9)


def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.int8)


@pytest.mark.parametrize("batch", [(3, 3), (1, 3), (3, 1), (1, 1)])
@pytest.mark.parametrize("size", [(4, 5), (0, 0), (0, 3)])
def test_each_head_reads_its_relation(batch, size):
    distances, codes = torch.randint(-1, 4, (batch[0], *size)), torch.randint(0, 9, (batch[1], *size))
    index = HeadGroups((HOPS, PAIRS), heads=(1, 2))(distances, PAIRS(codes))
    assert index.batch_heads == (max(batch), 3)
    assert (index.shape, index.num_codes) == (size, 9)
    for rows in (slice(None), slice(1, 3)):
        got = index.codes(rows)
        assert torch.equal(got[:, :1], HOPS(distances).codes(rows).expand(max(batch), 1, *got.shape[2:]))
        assert torch.equal(got[:, 1:], codes[:, None, rows].expand(max(batch), 2, *got.shape[2:]))


def test_an_index_with_heads_of_its_own_and_a_sequence():
    codes = torch.randint(0, 9, (1, 2, 4, 4))
    index = HeadGroups([PAIRS, Sequence(3)], heads=[2, 1])(codes, Sequence(3)(4))
    assert torch.equal(index.codes()[:, :2], codes)
    assert torch.equal(index.codes()[:, 2:], Sequence(3)(4).codes())


def test_transposed():
    distances, codes = torch.randint(-1, 4, (4, 4)), torch.randint(0, 9, (4, 4))
    index = HeadGroups((HOPS, PAIRS), (1, 2))(distances, codes)
    assert torch.equal(index.T.codes(), index.codes().mT)
    assert index.T.code_space == index.code_space == HeadGroups((HOPS, PAIRS), (1, 2)).code_space


def test_a_table_over_groups():
    groups = HeadGroups((HOPS, PAIRS), (1, 2))
    assert Table(3, 4, groups)(groups(zeros(4, 4), zeros(4, 4))).names == ("b",)
    with pytest.raises(ValueError, match="takes an index made by HeadGroups"):
        Table(3, 4, groups)(HeadGroups((HOPS, PAIRS), (2, 1))(zeros(4, 4), zeros(4, 4)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: HeadGroups((), ()), "got 0 relations and 0 numbers"),
        (lambda: HeadGroups((HOPS,), (1, 2)), "got 1 relations and 2 numbers"),
        (lambda: HeadGroups((HOPS,), (0,)), "heads must be an integer of at least 1, got 0"),
        (lambda: HeadGroups((Sequence(),), (1,)), "a limited number of codes, got Sequence"),
        (lambda: HeadGroups((HOPS, PAIRS), (1, 1))(zeros(2, 2)), "each of its 2 relations, got 1"),
        (lambda: HeadGroups((HOPS,), (1,))(Hops(3)(zeros(2, 2))), r"made by Hops\(max_distance=2.*got a HopsIndex"),
        (lambda: HeadGroups((HOPS, PAIRS), (1, 1))(zeros(2, 2), zeros(2, 3)), r"\[\(1, 2, 2\), \(1, 2, 3\)\]"),
        (lambda: HeadGroups((HOPS, PAIRS), (1, 1))(zeros(2, 2, 2), zeros(3, 2, 2)), r"\[\(2, 2, 2\), \(3, 2, 2\)\]"),
        (lambda: HeadGroups((PAIRS,), (2,))(zeros(1, 3, 2, 2)), "codes for 3 heads, and 2 read it"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()
