"""GraphData: parts, the kind of problem, checks and batches."""

import functools
from itertools import chain

import pytest
import torch
from tests.data.graph_sets import Parted, Rings, labels, parity, ring, sizes

from relbias.data import GraphData
from relbias.data.graph_splits import by_folds, shuffled_by_class


def made(dataset, **options):
    data = GraphData(dataset, **options)
    data.setup()
    return data


def graphs_of(data, part):
    return [int(position) for position in data.parts[part].positions]


@pytest.mark.parametrize(
    ("y", "kind", "outputs"),
    [(sizes, "regression", 1), (parity, "multiclass", 2), (labels, "multilabel", 3)],
)
def test_the_kind_is_read_off_y(y, kind, outputs):
    data = made(lambda: Rings(y))
    assert (data.kind, data.num_outputs) == (kind, outputs)
    assert (data.target_mean is not None) == (kind == "regression")


def test_the_kind_can_be_given():
    data = made(lambda: Rings(parity), kind="multilabel")
    assert (data.kind, data.num_outputs) == ("multilabel", 1)
    assert made(lambda: Rings(lambda i, n: torch.tensor([float(n % 2)])), kind="regression").kind == "regression"
    with pytest.raises(ValueError, match="y has values that are no integers, and kind is multiclass"):
        made(lambda: Rings(lambda i, n: torch.tensor([n + 0.5])), kind="multiclass")


def test_the_statistics_are_those_of_the_training_part_alone():
    data = made(lambda: Rings(sizes))
    train = torch.tensor([data.parts["train"][i].y.item() for i in range(len(data.parts["train"]))])
    assert data.target_mean == [pytest.approx(train.mean().item())]
    assert data.target_std == [pytest.approx(train.std(correction=0).item())]
    assert data.found == {
        "kind": "regression",
        "num_outputs": 1,
        "target_mean": data.target_mean,
        "target_std": data.target_std,
        "fold": 0,
    }


def test_missing_targets_do_not_count_in_the_statistics():
    data = made(lambda: Rings(lambda i, n: torch.tensor([[float(n), float("nan") if i % 2 else 2.0 * n]])))
    known = torch.cat([graph.y for graph in data.parts["train"]])[:, 1]
    known = known[~known.isnan()]
    assert data.target_mean[1] == pytest.approx(known.mean().item())
    with pytest.raises(ValueError, match="a column of targets that are all missing in the training part"):
        made(lambda: Rings(lambda i, n: torch.tensor([[n + 0.5, float("nan")]])))


def test_a_random_split_has_every_graph_once_and_depends_on_its_seed_alone():
    torch.manual_seed(0)
    first, torch_seed = made(lambda: Rings(sizes)), torch.manual_seed(1)
    again, other = made(lambda: Rings(sizes)), made(lambda: Rings(sizes), split_seed=1)
    assert torch_seed is not None
    parts = [graphs_of(first, part) for part in ("train", "val", "test")]
    assert [len(part) for part in parts] == [48, 6, 6]
    assert sorted(chain(*parts)) == list(range(60))
    assert graphs_of(again, "test") == parts[2] != graphs_of(other, "test")


def test_splits_are_stratified():
    classes = torch.tensor([0] * 30 + [1] * 60 + [2] * 10)
    order = shuffled_by_class(classes, 100, seed=3)
    assert sorted(order) == list(range(100))
    for start in range(0, 100, 10):
        counts = torch.bincount(classes[order[start : start + 10]], minlength=3)
        assert counts.tolist()[0] in (2, 3, 4)
        assert counts.tolist()[2] in (0, 1, 2)
    for fold in range(10):
        counts = torch.bincount(classes[by_folds(order, 10, fold)[2]], minlength=3)
        assert (counts - torch.tensor([3, 6, 1])).abs().max() <= 1


def test_the_folds_are_tests_that_have_every_graph_once():
    every = [made(lambda: Rings(parity), folds=10, fold=fold) for fold in range(10)]
    assert sorted(chain(*(graphs_of(data, "test") for data in every))) == list(range(60))
    for fold, data in enumerate(every):
        parts = [set(graphs_of(data, part)) for part in ("train", "val", "test")]
        assert graphs_of(data, "val") == graphs_of(every[(fold + 1) % 10], "test")
        assert sum(map(len, parts)) == len(set.union(*parts)) == 60


@pytest.mark.parametrize(("seed", "fold"), [(3, 3), (14, 4)])
def test_the_fold_can_be_the_seed_of_the_training(seed, fold):
    torch.manual_seed(seed)
    data = made(lambda: Rings(parity), folds=10, fold="seed")
    assert data.found["fold"] == fold
    assert graphs_of(data, "test") == graphs_of(made(lambda: Rings(parity), folds=10, fold=fold), "test")


@pytest.mark.parametrize("wrap", [lambda cls: cls, lambda cls: functools.partial(cls), lambda cls: _like_a_config(cls)])
def test_parts_of_its_own_are_taken(wrap):
    Parted.made.clear()
    data = GraphData(wrap(Parted))
    assert Parted.made == []  # nothing is made before it is needed
    data.setup()
    data.setup("test")
    assert Parted.made == ["train", "val", "test"]
    assert [len(data.parts[part]) for part in ("train", "val", "test")] == [20, 8, 6]
    with pytest.raises(ValueError, match="Parted has its own parts, and folds is 5; leave folds out"):
        made(wrap(Parted), folds=5)


def _like_a_config(cls):
    """What jsonargparse makes of a class_path."""
    return functools.partial(lambda inner, cls, **options: inner(cls, **options), lambda cls, **o: cls(**o), cls)


class _Indexed(Rings):
    def __init__(self, names):
        super().__init__(sizes)
        self.names = names

    def get_idx_split(self):
        positions = {"train": torch.arange(40), "valid": torch.arange(40, 50), "test": torch.arange(50, 60)}
        return {name: positions[name] for name in self.names}


def test_parts_by_index_are_taken():
    data = made(lambda: _Indexed(["train", "valid", "test"]))
    assert graphs_of(data, "test") == list(range(50, 60))
    assert graphs_of(made(lambda: _Indexed(["train", "valid"])), "test") == list(range(40, 50))
    with pytest.raises(ValueError, match=r"get_idx_split\(\) gives train, test, expected train, valid and test"):
        made(lambda: _Indexed(["train", "test"]))


def citations(num_columns=0):
    """One graph whose nodes are in parts."""
    torch.manual_seed(0)
    shape = (40, num_columns) if num_columns else (40,)
    part = torch.randint(3, shape)
    masks = {f"{name}_mask": part == number for number, name in enumerate(("train", "val", "test"))}
    return [ring(40, torch.randint(3, (40,)), **masks)]


def test_the_nodes_of_one_graph():
    data = made(citations)
    [graph] = citations()
    assert (data.kind, data.num_outputs) == ("multiclass", 3)
    [batch] = data.test_dataloader()
    assert torch.equal(batch.mask, graph.test_mask)
    [batch] = data.train_dataloader()
    assert torch.equal(batch.mask, graph.train_mask)
    assert torch.equal(batch.y, graph.y)


def test_masks_of_several_columns_are_chosen_by_the_fold():
    [batch] = made(lambda: citations(4), fold=2).test_dataloader()
    assert torch.equal(batch.mask, citations(4)[0].test_mask[:, 2])
    with pytest.raises(ValueError, match=r"fold is 4, and the masks of .* have 4 columns"):
        made(lambda: citations(4), fold=4)


def test_the_nodes_of_many_graphs():
    data = made(lambda: Rings(lambda i, n: torch.arange(n) % 3), batch_size=4)
    batch = next(iter(data.test_dataloader()))
    assert (data.kind, data.num_outputs, "mask" in batch) == ("multiclass", 3, False)
    assert len(batch.y) == batch.num_nodes


def test_graphs_without_features_have_one_category():
    graphs = [ring(size, torch.tensor([size % 2]), x=None) for size in [3, 4, 5] * 8]
    batch = next(iter(made(lambda: graphs).val_dataloader()))
    assert torch.equal(batch.x, torch.zeros(batch.num_nodes, 1, dtype=torch.int64))
    assert graphs[0].x is None


def test_what_the_transform_of_a_data_set_makes_is_what_counts():
    def change(graph):
        graph.x, graph.y = torch.full((graph.num_nodes, 2), 0.5), graph.y[:, 1:]
        return graph

    def dataset():
        every = Rings(lambda i, n: torch.tensor([[float("nan"), n / 2]]))
        every.transform = change
        return every

    task = Told()
    data = GraphData(dataset)
    data.adapt_to(task)
    data.setup()
    assert (data.num_outputs, task.extremes.x.tolist()) == (1, [[0.5, 0.5]] * 2)
    train = torch.cat([graph.y for graph in data.parts["train"]])
    assert data.target_mean == [pytest.approx(train.mean().item())]


class Told:
    """A task that is told about the data."""

    def adapt(self, *found):
        pass


def test_transforms_are_applied_once():
    calls = []

    def add(graph):
        calls.append(graph.num_nodes)
        graph.extra = torch.full((graph.num_nodes,), 7)
        return graph

    data = made(lambda: Rings(sizes), transforms=[add, lambda graph: graph])
    assert len(calls) == 60
    batch = next(iter(data.train_dataloader()))
    assert torch.equal(batch.extra, torch.full((batch.num_nodes,), 7))
    list(data.train_dataloader())
    assert len(calls) == 60


@pytest.mark.parametrize("buckets", [True, False])
def test_training_batches_come_in_the_order_of_the_seed(buckets):
    torch.manual_seed(5)
    data = made(lambda: Rings(sizes), batch_size=7, buckets=buckets)
    loader = data.train_dataloader()
    first = [batch.y.tolist() for batch in loader]
    loader.sampler.set_epoch(1)
    second = [batch.y.tolist() for batch in loader]
    assert sorted(chain(*first)) == sorted(chain(*second))
    assert first != second
    torch.manual_seed(5)
    again = made(lambda: Rings(sizes), batch_size=7, buckets=buckets)
    assert [batch.y.tolist() for batch in again.train_dataloader()] == first


def test_batches_hold_graphs_of_similar_size_if_wanted():
    def padded(buckets):
        loader = made(lambda: Rings(sizes), batch_size=7, buckets=buckets).train_dataloader()
        return sum(batch.num_graphs * int(torch.bincount(batch.batch).max()) for batch in loader)

    torch.manual_seed(0)
    assert padded(True) < padded(False)


@pytest.mark.parametrize(
    ("graphs", "message"),
    [
        ([], "has no graphs"),
        ([ring(3)] * 20, "has no targets: its graphs have no y"),
        ([ring(3, torch.ones(1))] * 4 + [ring(3)], "graph 4 has no y, and others have one"),
        ([ring(3, torch.ones(5))] * 20, r"y of graph 0 has 5 rows, expected 1 for the graph or 3 for its nodes"),
        (
            [ring(3, torch.ones(1, 2))] + [ring(3, torch.ones(1, 3))] * 20,
            r"y of graph 1 is \(1, 3\) and that of graph 0 \(1, 2\), expected as many columns",
        ),
        (
            [ring(3, sizes(0, i), x=torch.full((3, 2), float("nan") if i == 7 else 1.0)) for i in range(20)],
            r"x of graph 7 is NaN or infinite, in 3 of 60 rows of the data",
        ),
        (
            [ring(3, sizes(0, i), edge_attr=torch.full((6,), float("inf") if i == 2 else 1.0)) for i in range(20)],
            r"edge_attr of graph 2 is NaN or infinite",
        ),
        ([ring(3, torch.tensor([-1])), *[ring(3, torch.tensor([1]))] * 20], "has classes below 0 in y"),
        ([ring(3, torch.tensor([[0, 5]]))] * 20, "y has 2 columns of integers from 0 to 5: give kind"),
        ([ring(3, sizes())], "1 graphs, and 1 for validation and 1 for the test leave none for training"),
        ([ring(3, torch.tensor([0, 1, 2]))], "is one graph without train_mask, val_mask and test_mask"),
        ([{"y": 1}] * 3, "gives dict, expected graphs of PyG's class Data"),
    ],
)
def test_data_that_cannot_be_used_is_refused_in_one_line(graphs, message):
    with pytest.raises(ValueError, match=message) as caught:
        made(lambda: graphs)
    assert "\n" not in str(caught.value)


def test_nan_features_are_found_in_a_data_set_as_in_a_list():
    def broken():
        data = Rings(sizes)
        data._data.pos = torch.zeros(len(data._data.x), 3)
        data.slices["pos"] = data.slices["x"]
        data._data.pos[4] = float("nan")  # the first node of the third graph, after 3 and 1 nodes
        return data

    with pytest.raises(ValueError, match="broken: pos of graph 2 is NaN or infinite, in 1 of 215 rows"):
        made(broken)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be"),
        ({"kind": "ordinal"}, "kind is 'ordinal', expected one of regression, multiclass, multilabel"),
        ({"val_share": 0.6, "test_share": 0.5}, "expected shares above 0, together below 1"),
        ({"folds": 2}, "folds must be"),
        ({"folds": 5, "fold": 5}, "fold is 5 and folds is 5, expected a fold from 0 to 4"),
        ({"fold": "seed"}, "needs the number of folds; give folds"),
    ],
)
def test_arguments_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        GraphData(lambda: Rings(sizes), **options)


def test_data_that_has_changed_is_noticed():
    found = made(lambda: Rings(sizes)).found
    made(lambda: Rings(sizes), **found)
    with pytest.raises(ValueError, match="the data has changed since the training"):
        made(lambda: Rings(lambda i, n: sizes(i, n) + 1), **found)
    with pytest.raises(ValueError, match="has 1 targets, and num_outputs is 2; give 1 or leave it out"):
        made(lambda: Rings(sizes), num_outputs=2)
