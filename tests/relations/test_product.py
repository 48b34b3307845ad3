"""Combinations of relations."""

from __future__ import annotations

import pytest
import torch

from relbias.encodings import Table
from relbias.relations import HeadGroups, Labels, Pairs, Product, Sequence

TIME, VOICES = Sequence(max_distance=2), Labels(4)
PRODUCT = Product((TIME, VOICES))


def test_every_pair_by_a_loop():
    places = torch.tensor([0, 0, 1, 3, 9])
    voices = torch.randint(4, (3, 5))
    index = PRODUCT(TIME(5, positions=places), voices)
    assert (index.shape, index.batch_heads, index.num_codes) == ((5, 5), (3, 1), 80)
    for item in range(3):
        for i in range(5):
            for j in range(5):
                time = max(-2, min(2, int(places[j] - places[i]))) + 2
                expected = (time * 4 + int(voices[item, i])) * 4 + int(voices[item, j])
                assert index.codes()[item, 0, i, j] == index.codes(slice(i, i + 1))[item, 0, 0, j] == expected
    assert torch.equal(index.T.codes(), index.codes().mT)
    assert torch.equal(index.to("cpu").codes(), index.codes())


def test_three_relations_with_heads_of_their_own_and_codes_that_differ():
    parts = (Sequence(max_distance=1), Pairs(3), HeadGroups((Pairs(2), Pairs(5)), (1, 1)))
    codes = [torch.randint(size, (1, 4, 4)) for size in (3, 2, 5)]
    index = Product(parts)(parts[0](4), codes[0], parts[2](codes[1], codes[2]))
    assert index.num_codes == Product(parts).num_codes == 3 * 3 * 5
    assert index.batch_heads == (1, 2)
    tuples = {}
    for head in range(2):
        for i in range(4):
            for j in range(4):
                key = (max(-1, min(1, j - i)), int(codes[0][0, i, j]), int(codes[1 + head][0, i, j]))
                tuples.setdefault(key, set()).add(int(index.codes()[0, head, i, j]))
    assert all(len(found) == 1 for found in tuples.values())
    assert len(set.union(*tuples.values())) == len(tuples)


def test_sizes_alone_are_known_to_be_so():
    assert Product((TIME, Sequence(1)))(TIME(3), Sequence(1)(3)).of_sizes
    assert not PRODUCT(TIME(3), torch.zeros(3, dtype=torch.int64)).of_sizes


def test_a_table_takes_no_index_of_another_product():
    voices = torch.zeros(3, dtype=torch.int64)
    table = Table(2, 4, PRODUCT)
    assert table.table.shape == (2, 80)
    assert table(PRODUCT(TIME(3), voices)).names == ("b",)
    with pytest.raises(ValueError, match="takes an index made by Product"):
        table(Product((VOICES, TIME))(voices, TIME(3)))  # as many codes, but in another order


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Product(()), "at least one relation, got none"),
        (lambda: Product((Sequence(),)), "a limited number of codes, got Sequence"),
        (lambda: PRODUCT(TIME(2)), "each of its 2 relations, got 1"),
        (lambda: PRODUCT(Sequence(3)(2), torch.zeros(2).long()), r"made by Sequence\(max_distance=2\), got a Sequence"),
        (lambda: PRODUCT(TIME(2), torch.zeros(3).long()), r"same sizes .*\[\(1, 2, 2\), \(1, 3, 3\)\]"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()
