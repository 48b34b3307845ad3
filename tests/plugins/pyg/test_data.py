"""PyG's Data and Batch as a GraphBatch, distances, and what is refused."""

import pytest
import torch
from tests.plugins.pyg.graphs import random_graph, traps
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.transforms import ToSparseTensor, ToUndirected

import relbias as rb
from relbias.plugins.pyg import AddRandomWalks, AddShortestPaths, graph_batch, shortest_paths


def hops_by_breadth_first_search(data: Data) -> torch.Tensor:
    out = torch.full((data.num_nodes, data.num_nodes), -1)
    after = [set() for _ in range(data.num_nodes)]
    for i, j in data.edge_index.T.tolist():
        after[i].add(j)
    for start in range(data.num_nodes):
        front, steps = {start}, 0
        while front:
            for node in front:
                out[start, node] = steps
            front = {j for node in front for j in after[node] if out[start, j] < 0}
            steps += 1
    return out


@pytest.mark.parametrize("undirected", [True, False])
def test_shortest_paths_of_a_graph(undirected):
    for seed in range(20):
        data = random_graph(8, 9, seed, undirected)
        expected = hops_by_breadth_first_search(data)
        found = shortest_paths(data)
        assert found.dtype == torch.int16
        assert torch.equal(found.long(), expected)
        near = shortest_paths(data, max_distance=2)
        assert near.dtype == torch.int8
        assert torch.equal(near.long(), expected.clamp(max=3))
        both = Data(edge_index=torch.cat((data.edge_index, data.edge_index.flip(0)), 1), num_nodes=8)
        assert torch.equal(shortest_paths(data, directed=False).long(), hops_by_breadth_first_search(both))


def test_shortest_paths_of_a_batch_are_those_of_its_graphs_padded():
    graphs = [*traps(), random_graph(0, 0, 9)]  # the last one has no nodes
    found = shortest_paths(Batch.from_data_list(graphs))
    assert found.shape == (len(graphs), 12, 12)
    for one, data in zip(found, graphs, strict=True):
        n = data.num_nodes
        assert torch.equal(one[:n, :n], shortest_paths(data))
        assert (one[n:] == -1).all()
        assert (one[:, n:] == -1).all()


def test_graph_batch_has_what_the_data_has():
    graphs = traps()
    batch = Batch.from_data_list(graphs)
    made = graph_batch(batch)
    assert made.sizes.tolist() == [data.num_nodes for data in graphs]
    assert made.edge_attr is batch.edge_attr
    assert made.pos is batch.pos
    assert made.pairs == {}
    one = graph_batch(graphs[0])
    assert one.batch is None
    assert one.sizes.tolist() == [9]
    assert torch.equal(one.distances[0], shortest_paths(graphs[0]))
    bare = graph_batch(Data(edge_index=graphs[0].edge_index, num_nodes=9))
    assert bare.edge_attr is None
    assert bare.pos is None


def test_graph_batch_counts_last_graphs_without_nodes():
    batch = Batch.from_data_list([random_graph(3, 3, 1), random_graph(0, 0, 2)])
    assert graph_batch(batch).sizes.tolist() == [3, 0]
    assert graph_batch(batch).distances.shape == (2, 3, 3)


def test_attributes_of_other_names():
    data = random_graph(6, 8, 1)
    data.bond, data.place = data.edge_attr, data.pos
    del data.edge_attr, data.pos
    data = AddShortestPaths(attr_name="steps")(data)
    made = graph_batch(data, edge_attr="bond", pos="place", pairs={"hops": "steps"})
    assert made.edge_attr is data.bond
    assert made.pos is data.place
    assert made.pairs["hops"] is data.steps
    for names in ({"edge_attr": "bonds"}, {"pos": "places"}, {"pairs": {"hops": "stepz"}}):
        with pytest.raises(ValueError, match=r"no attribute '(bonds|places|stepz)'; it has .*steps"):
            graph_batch(data, **names)
    with pytest.raises(ValueError, match=r"'hop'.*hops"):
        graph_batch(data, pairs={"hop": "steps"})


def test_stored_distances_are_used():
    data = AddShortestPaths(max_distance=2)(random_graph(8, 8, 3))
    batch = Batch.from_data_list([data, AddShortestPaths(max_distance=2)(random_graph(3, 2, 4))])
    made = graph_batch(batch)
    assert made.distances.dtype == torch.int8
    assert torch.equal(made.distances, shortest_paths(batch, max_distance=2))


def test_edge_index_of_pyg_and_a_batch_vector_of_ones_own():
    data = random_graph(6, 8, 1)
    plain = shortest_paths(data)
    data.edge_index = EdgeIndex(data.edge_index, sparse_size=(6, 6))
    found = shortest_paths(data)
    assert type(found) is type(graph_batch(data).edge_index) is torch.Tensor
    assert torch.equal(found, plain)
    data = Data(edge_index=torch.tensor([[0, 2], [1, 3]]), num_nodes=4, batch=torch.tensor([0, 0, 1, 1]))
    assert shortest_paths(data).shape == graph_batch(data).distances.shape == (2, 2, 2)


@pytest.mark.parametrize("function", [graph_batch, shortest_paths])
def test_refuses_what_is_no_graph_of_one_kind(function):
    hetero = HeteroData()
    hetero["atom"].x = torch.zeros(2, 1)
    hetero["atom", "bond", "atom"].edge_index = torch.zeros(2, 1, dtype=torch.long)
    data = random_graph(4, 4, 1)
    for given, message in (
        (hetero, "got a HeteroData; .*to_homogeneous"),
        (Batch.from_data_list([hetero]), "got a HeteroDataBatch; .*to_homogeneous"),
        ([data, data], r"got a list; .*Batch\.from_data_list"),
        (data.edge_index, "got a Tensor"),
        (Data(x=data.x), "no edge_index;"),
        (ToSparseTensor(attr=None, layout=torch.sparse_csr)(data.clone()), "no edge_index but a sparse adj_t"),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            function(given)
        assert "\n" not in str(caught.value)


def test_nan_is_found_in_columns_that_lie_apart():
    data = random_graph(6, 8, 1)
    data.x = torch.zeros(4, 2, 6).permute(2, 1, 0)
    data.x[3, 1, 2] = float("nan")
    with pytest.raises(ValueError, match=r"^x has NaN in 1 of 6 rows"):
        graph_batch(data)


@pytest.mark.parametrize("name", ["x", "edge_attr", "pos"])
def test_refuses_nan(name):
    data = random_graph(6, 8, 1)
    data.edge_attr = data.edge_attr.float()
    data[name][2] = float("nan")
    with pytest.raises(ValueError, match=rf"^{name} has NaN in 1 of \d+ rows"):
        graph_batch(
            Batch.from_data_list([random_graph(3, 3, 2).update({"edge_attr": torch.zeros(0)}), data])
            if name != "edge_attr"
            else data
        )


def test_refuses_other_numbers_of_rows():
    data = random_graph(6, 8, 1)
    data.edge_attr = data.edge_attr[1:]
    with pytest.raises(ValueError, match=r"edge_attr must have a row for each of \d+, got shape"):
        graph_batch(data)


def test_refuses_pairs_of_a_graph_that_was_changed_since():
    data = AddShortestPaths()(random_graph(6, 8, 1, undirected=False))
    with pytest.raises(ValueError, match=r"hops is not 1 for all edges.*behind all"):
        graph_batch(ToUndirected()(data))
    data = AddRandomWalks(3)(random_graph(6, 8, 1))
    data.x, data.pos = data.x[:5], data.pos[:5]
    data.edge_index, data.edge_attr = data.edge_index[:, :0], data.edge_attr[:0]
    with pytest.raises(ValueError, match=r"walks has shape \(36, 3\), the graphs have 25 pairs"):
        graph_batch(data)


def test_is_reached_by_the_name_of_the_package():
    assert rb.plugins.pyg.graph_batch is graph_batch
