import pytest
import torch

import relbias as rb
from relbias.relations import (
    Bins,
    Distances,
    EdgePaths,
    EdgeSets,
    EdgeTypes,
    Features,
    GraphRelation,
    Grid,
    HeadGroups,
    Hops,
    Labels,
    Pairs,
    Product,
    RandomWalks,
    Relation,
    Resistances,
    Sequence,
    Volume,
)
from relbias.testing import random_values

CODED = {
    Pairs(3): 3,
    Hops(2): 5,
    Hops(2, prefix_tokens=3): 20,
    EdgeSets(2): 4,
    Bins(3): 3,
    Distances(2): 2,
    Distances(2, prefix_tokens=1): 3,
    EdgeTypes(2): 5,
    EdgeTypes(2, prefix_tokens=1): 5,
    HeadGroups((Hops(2, prefix_tokens=1), Pairs(3)), (1, 2)): 8,
    Labels(3): 9,
    Product((Pairs(3), Hops(2))): 15,
}
"""Relations and how many codes they have."""
UNCODED = (
    EdgePaths(3, 2),
    EdgePaths((3, 2), 2, prefix_tokens=1),
    Features(2),
    RandomWalks(3),
    Resistances(prefix_tokens=1),
)
POSITIONAL = (Sequence(), Grid(2, 2), Volume(2, 2, 2))


def test_every_relation_of_the_library_is_here():
    classes = {value for value in vars(rb.relations).values() if isinstance(value, type)}
    relations = {c for c in classes if issubclass(c, Relation)} - {Relation, GraphRelation}
    assert {type(relation) for relation in (*CODED, *UNCODED, *POSITIONAL)} == relations


@pytest.mark.parametrize("relation", [*CODED, *UNCODED], ids=str)
@pytest.mark.parametrize(("n", "m"), [(4, 4), (3, 5), (5, 3)])
def test_the_index_has_the_sizes_asked_for(relation, n, m):
    values = random_values(relation, 2, n, m)
    index = relation(*values)
    assert index.shape == (n, m)
    assert index.batch_heads[0] == 2
    assert all(len(value) == 2 for value in values)


@pytest.mark.parametrize("relation", [Pairs(3), EdgePaths(3, 2), HeadGroups((Hops(2), Pairs(3)), (1, 2))], ids=str)
def test_no_token(relation):
    assert relation(*random_values(relation, 2, 0, 0)).shape == (0, 0)


@pytest.mark.parametrize("prefix", [1, 3])
def test_prefix_tokens_alone(prefix):
    relation = Hops(2, prefix_tokens=prefix)
    assert relation(*random_values(relation, 2, prefix, prefix)).shape == (prefix, prefix)


@pytest.mark.parametrize("relation", CODED, ids=str)
def test_every_code_occurs(relation):
    torch.manual_seed(0)
    assert set(relation(*random_values(relation, 3, 40, 40)).codes().unique().tolist()) == set(range(CODED[relation]))


@pytest.mark.parametrize("relation", [EdgePaths(3, 2), EdgePaths((3, 2), 2), EdgePaths(num_features=2, max_edges=2)])
def test_paths_of_every_length_occur_and_differ(relation):
    torch.manual_seed(0)
    paths, parents, edges = random_values(relation, 1, 20, 20)
    assert set(paths.unique().tolist()) == {-1, 0, 1, 2, 3, 4, 5}
    index = relation(paths, parents, edges)
    assert index.forest.starts == (1, 4, 7)


@pytest.mark.parametrize("relation", POSITIONAL, ids=str)
def test_a_positional_relation_has_none(relation):
    assert random_values(relation, 2, 4, 4) is None


@pytest.mark.parametrize("part", [Sequence(max_distance=2), Bins(3)], ids=str)
def test_what_it_does_not_know_is_refused(part):
    with pytest.raises(ValueError, match="knows no tensors for HeadGroups"):
        random_values(HeadGroups((part, Pairs(2)), (1, 1)), 2, 4, 4)


@pytest.mark.parametrize("relation", [*CODED, *UNCODED], ids=str)
def test_an_index_moves_with_all_its_tensors(relation):
    index = relation(*random_values(relation, 2, 4, 4)).to("meta")
    parts = getattr(index, "indices", (index,))
    tensors = [value for part in parts for value in vars(part).values() if isinstance(value, torch.Tensor)]
    assert tensors
    assert all(tensor.is_meta for tensor in tensors)
