"""What the transforms store, and that PyG's own loaders, data sets and batches keep it right."""

import warnings

import pytest
import torch
from tests.plugins.pyg.graphs import random_graph, traps
from torch_geometric.data import Batch, HeteroData, InMemoryDataset
from torch_geometric.data.datapipes import DatasetAdapter
from torch_geometric.loader import DataLoader
from torch_geometric.transforms import Compose, ToUndirected

from relbias.plugins.pyg import (
    AddDegrees,
    AddPathEdges,
    AddRandomWalks,
    AddResistances,
    AddShortestPaths,
    graph_batch,
    shortest_paths,
)
from relbias.relations import random_walks, resistance_distances

TRANSFORMS = [
    AddShortestPaths(),
    AddShortestPaths(max_distance=3, attr_name="near"),
    AddPathEdges(),
    AddRandomWalks(num_steps=4),
    AddResistances(),
    AddDegrees(),
]
NAMES = ["hops", "near", "last_edges", "walks", "resistance", "in_degree", "out_degree"]


class Small(InMemoryDataset):
    """The graphs that are traps, processed into files."""

    @property
    def processed_file_names(self):
        return ["data.pt"]

    def __init__(self, root, pre_transform=None, transform=None):
        super().__init__(root, transform, pre_transform)
        self.load(self.processed_paths[0])

    def process(self):
        self.save([self.pre_transform(data) for data in traps()], self.processed_paths[0])


def adjacency(data):
    matrix = torch.zeros(data.num_nodes, data.num_nodes)
    for i, j in data.edge_index.T.tolist():
        matrix[i, j] += 1
    return matrix


def last_edges_in_loops(data):
    """The first edge of the list that prolongs a shortest path from i to one of the same length as that to j."""
    n, hops = data.num_nodes, shortest_paths(data).tolist()
    out = torch.full((n, n), -1, dtype=torch.int32)
    for i in range(n):
        for j in range(n):
            for number, (before, after) in enumerate(data.edge_index.T.tolist()):
                if after == j and 0 <= hops[i][before] == hops[i][j] - 1:
                    out[i, j] = number
                    break
    return out


def same(got, expected):
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        assert one.num_nodes == other.num_nodes
        assert torch.equal(one.edge_index, other.edge_index)
        for name in NAMES:
            assert one[name].dtype == other[name].dtype, name
            assert torch.equal(one[name], other[name]), name


@pytest.fixture
def stored():
    return [Compose(TRANSFORMS)(data) for data in traps()]


def test_stored_values(stored):
    for data in stored:
        n = data.num_nodes
        assert torch.equal(data.hops.view(n, n), shortest_paths(data))
        assert torch.equal(data.near.view(n, n), shortest_paths(data, max_distance=3))
        assert torch.equal(data.last_edges.view(n, n), last_edges_in_loops(data))
        assert torch.equal(data.walks.view(n, n, 4), random_walks(adjacency(data), 4))
        assert torch.equal(data.resistance.view(n, n, 2), resistance_distances(adjacency(data)))
        assert torch.equal(data.in_degree, adjacency(data).sum(0).long())
        assert torch.equal(data.out_degree, adjacency(data).sum(1).long())


def test_directed_degrees_are_kept_apart():
    data = AddDegrees("into", "out_of")(random_graph(7, 12, 1, undirected=False))
    assert torch.equal(data.into, adjacency(data).sum(0).long())
    assert torch.equal(data.out_of, adjacency(data).sum(1).long())
    assert not torch.equal(data.into, data.out_of)


def test_the_graph_given_is_left_as_it_was():
    data = random_graph(5, 6, 1)
    keys = set(data.keys())
    Compose(TRANSFORMS)(data)
    assert set(data.keys()) == keys


@pytest.mark.parametrize("num_workers", [0, 2])
def test_batches_of_the_loader_give_back_their_graphs(stored, num_workers):
    loader = DataLoader(stored, batch_size=3, num_workers=num_workers)
    batches = list(loader)
    same([data for batch in batches for data in batch.to_data_list()], stored)
    for batch, first in zip(batches, range(0, 9, 3), strict=True):
        made = graph_batch(batch)
        assert set(made.pairs) == {"hops", "last_edges", "walks", "resistance"}
        for b, data in enumerate(stored[first : first + 3]):
            n = data.num_nodes
            assert torch.equal(made.distances[b, :n, :n], data.hops.view(n, n))
            first = int(batch._slice_dict["edge_attr"][b])
            last = data.last_edges.view(n, n)
            assert torch.equal(made.last_edges[b, :n, :n], torch.where(last < 0, last, last + first))
            walks = made.padded(made.pairs["walks"], 0.0)[b]
            assert torch.equal(walks[:n, :n], data.walks.view(n, n, -1))
            assert not walks[n:].any()


def test_select_follow_and_exclude(stored):
    batch = Batch.from_data_list(stored, follow_batch=["hops"])
    same(batch.index_select([4, 1, 5]), [stored[4], stored[1], stored[5]])
    assert batch.hops_batch.bincount().tolist() == [data.num_nodes**2 for data in stored]
    without = next(iter(DataLoader(stored, batch_size=8, exclude_keys=["hops", "walks"])))
    assert "hops" not in without
    assert "walks" not in without
    assert torch.equal(graph_batch(without).distances, graph_batch(batch).distances)


def test_a_data_set_keeps_them_in_its_files(tmp_path, stored):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # PyG warns where it cannot load weights only
        made = Small(tmp_path, pre_transform=Compose(TRANSFORMS))
        same(list(made), stored)
        again = Small(tmp_path, pre_transform=Compose(TRANSFORMS))
        same(list(again), stored)
        same(list(again[[5, 2]].copy()), [stored[5], stored[2]])
    with pytest.warns(UserWarning, match="pre_transform"):  # another limit is another transform
        Small(tmp_path, pre_transform=Compose([AddShortestPaths(max_distance=9), *TRANSFORMS[1:]]))


def test_as_transform_it_is_done_when_a_graph_is_taken(tmp_path, stored):
    plain = Small(tmp_path, pre_transform=AddDegrees(), transform=Compose(TRANSFORMS))
    batch = next(iter(DataLoader(plain, batch_size=len(plain), num_workers=2)))
    same(batch.to_data_list(), stored)


def test_functional_names(stored):
    pipe = DatasetAdapter(traps())
    pipe = pipe.add_shortest_paths().add_shortest_paths(max_distance=3, attr_name="near")
    same(list(pipe.add_path_edges().add_random_walks(num_steps=4).add_resistances().add_degrees()), stored)


def test_shown_with_their_arguments():
    assert [repr(transform) for transform in TRANSFORMS] == [
        "AddShortestPaths(max_distance=None, attr_name='hops', directed=True)",
        "AddShortestPaths(max_distance=3, attr_name='near', directed=True)",
        "AddPathEdges(attr_name='last_edges')",
        "AddRandomWalks(num_steps=4, attr_name='walks')",
        "AddResistances(attr_name='resistance')",
        "AddDegrees(in_name='in_degree', out_name='out_degree')",
    ]


@pytest.mark.parametrize("transform", TRANSFORMS, ids=repr)
def test_refuses_all_but_a_single_graph(transform):
    name = type(transform).__name__
    data = random_graph(4, 4, 1)
    hetero = HeteroData()
    hetero["atom"].x = torch.zeros(2, 1)
    for given, kind in (
        (Batch.from_data_list([data, data]), "DataBatch"),
        (hetero, "HeteroData"),
        ([data, data], "list"),
    ):
        with pytest.raises(ValueError, match=f"^{name} takes a Data, got a {kind}[ ;]"):
            transform(given)
    del data.edge_index
    with pytest.raises(ValueError, match="no edge_index"):
        transform(data)


@pytest.mark.parametrize("name", ["hop_index", "my_batch", "node_hops", "x", "ptr", "a b", "", 3])
def test_refuses_names_that_pyg_gives_a_meaning(name):
    for make in (AddShortestPaths, AddResistances):
        with pytest.raises(ValueError, match=r"name of (the|an) attribute"):
            make(attr_name=name)
    with pytest.raises(ValueError, match=r"name of (the|an) attribute"):
        AddDegrees(out_name=name)


def test_refuses_sizes():
    for make in (lambda: AddShortestPaths(0), lambda: AddRandomWalks(0), lambda: AddRandomWalks(2.5)):
        with pytest.raises(ValueError, match=r"at least 1|integer"):
            make()


def test_a_later_transform_that_takes_pairs_for_edges_is_found_out():
    data = AddShortestPaths()(traps()[5])  # n n edges
    assert data.is_edge_attr("hops")
    with pytest.raises(ValueError, match=r"hops.*behind all"):
        graph_batch(ToUndirected()(data))
    assert graph_batch(AddShortestPaths()(ToUndirected()(traps()[5]))).distances.max() == 1
