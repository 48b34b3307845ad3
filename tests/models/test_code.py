"""The source transformer: its relations against a walk through the tree, padding, hidden names, and its errors."""

from __future__ import annotations

import networkx as nx
import pytest
import torch

from relbias.encodings import Shaw, Table, create_encoding
from relbias.models import ClassificationHead, PointerHead, SourceTransformer
from relbias.models.code_relations import (
    HOP_VALUES,
    PAGERANK_VALUES,
    SIGNED_VALUES,
    SourceTrees,
    code_indices,
    code_relations,
)
from relbias.relations import Pairs, Sequence, tree_pageranks

SMALL = {"num_words": 20, "node_types": 6, "edge_types": 3, "dim": 16, "depth": 2, "num_heads": 2}
CODE_TRANSFORMER = {
    "offset": "transformer_xl",
    "hop_bins": "code_transformer",
    "ancestor_bins": "code_transformer",
    "sibling_bins": "code_transformer",
    "pagerank_bins": "code_transformer",
}
ALL = CODE_TRANSFORMER | {
    "tree": "table",
    "hops": "table",
    "ancestor": "ast_trans",
    "sibling": "table",
    "depth": "table",
    "neighbor": "table",
    "edges": "great",
}


def make(encoding, seed=0, **options):
    torch.manual_seed(seed)
    model = SourceTransformer(encoding, **{**SMALL, **options}).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def source(sizes=((7, 9), (4, 5)), seed=0):
    """Random trees and tokens, padded: sizes are (tokens, nodes)."""
    random = torch.Generator().manual_seed(seed)

    def draw(high, *shape):
        return torch.randint(high, shape, generator=random)

    n, v = (max(size) for size in zip(*sizes, strict=True))
    batch = {
        "words": torch.zeros(len(sizes), n, 3, dtype=torch.int64),
        "parents": torch.full((len(sizes), v), -1),
        "node_of_token": torch.full((len(sizes), n), -1),
        "node_types": torch.zeros(len(sizes), v, dtype=torch.int64),
        "edges": torch.zeros(len(sizes), n, n, dtype=torch.int64),
        "key_padding_mask": torch.ones(len(sizes), n, dtype=torch.bool),
    }
    for row, (tokens, nodes) in enumerate(sizes):
        batch["words"][row, :tokens, 0] = 1 + draw(19, tokens)
        batch["words"][row, :tokens, 1] = draw(20, tokens)
        batch["parents"][row, 1:nodes] = torch.tensor([int(draw(node, 1)) for node in range(1, nodes)])
        batch["node_of_token"][row, :tokens] = draw(nodes, tokens)
        batch["node_types"][row, :nodes] = draw(6, nodes)
        batch["edges"][row, :tokens, :tokens] = draw(8, tokens, tokens)
        batch["key_padding_mask"][row, :tokens] = False
    return batch


def nearest(value, values):
    distances = [(abs(value - other), abs(other)) for other in values.tolist()]
    return distances.index(min(distances))


def test_every_relation_by_a_walk_through_the_tree():
    batch = source(((8, 12), (5, 6)))
    relations = code_relations(max_steps=2, max_distance=2, max_hops=3, edge_types=3)
    index = code_indices(relations, SourceTrees(batch["parents"], batch["node_of_token"], batch["edges"]))
    assert index.keys() == relations.keys() - {"offset"}
    codes = {key: each.codes()[:, 0] for key, each in index.items()}
    pageranks = tree_pageranks(batch["parents"])
    for row, (tokens, nodes) in enumerate([(8, 12), (5, 6)]):
        parents = batch["parents"][row, :nodes].tolist()
        tree = nx.DiGraph([(parent, node) for node, parent in enumerate(parents) if parent >= 0])
        paths = dict(nx.all_pairs_shortest_path_length(tree))
        depth = paths[0]
        places = batch["node_of_token"][row].tolist()
        for i, a in enumerate(places):
            for j, b in enumerate(places):
                found = {key: int(codes[key][row, i, j]) for key in codes}
                if i >= tokens or j >= tokens:
                    unrelated = {"tree": 9, "hops": 5, "ancestor": 5, "sibling": 5, "depth": 5, "neighbor": 5}
                    bins = {"hop_bins": 31, "ancestor_bins": 31, "sibling_bins": 31, "pagerank_bins": 31}
                    assert found == unrelated | bins | {"edges": 0}
                    continue
                common = nx.lowest_common_ancestor(tree, a, b)
                up, down = paths[common][a], paths[common][b]
                below, above = paths[a].get(b), paths[b].get(a)
                straight = below if below is not None else -above if above is not None else None
                children = [node for node in range(nodes) if parents[node] == parents[a]]
                are_siblings = a == b or (a in children and b in children and parents[a] >= 0)
                step = children.index(b) - children.index(a) if are_siblings and a != b else 0
                expected = {
                    "tree": 3 * min(up, 2) + min(down, 2),
                    "hops": min(up + down, 4),
                    "ancestor": 5 if straight is None else 2 + max(-2, min(2, straight)),
                    "sibling": 2 + max(-2, min(2, step)) if are_siblings else 5,
                    "depth": 2 + max(-2, min(2, depth[b] - depth[a])),
                    "edges": int(batch["edges"][row, i, j]),
                    "hop_bins": nearest(up + down, HOP_VALUES),
                    "ancestor_bins": 31 if straight is None else nearest(straight, SIGNED_VALUES),
                    "sibling_bins": nearest(step, SIGNED_VALUES) if are_siblings else 31,
                    "pagerank_bins": nearest(float(pageranks[row, a, b]), PAGERANK_VALUES),
                }
                near = {(0, 0): 0, (1, 0): 1, (0, 1): 2}.get((up, down), 5)
                expected["neighbor"] = {1: 3, -1: 4}[step] if abs(step) == 1 else near
                assert found == expected, (row, i, j)


def test_bins_of_distances_in_a_deep_tree():
    parents = torch.arange(-1, 129)[None]
    nodes = [0, 40, 126, 127, 128]
    relations = {key: code_relations(1, 1, 1, 1)[key] for key in ("ancestor_bins", "hop_bins")}
    index = code_indices(relations, SourceTrees(parents, torch.tensor([nodes]), None))
    found = {key: each.codes()[0, 0].tolist() for key, each in index.items()}
    # 128 counts as 127, and both are far beyond the last of the values.
    assert found["ancestor_bins"] == [[nearest(b - a, SIGNED_VALUES) for b in nodes] for a in nodes]
    assert found["hop_bins"] == [[nearest(abs(b - a), HOP_VALUES) for b in nodes] for a in nodes]


@pytest.mark.parametrize("encoding", ["none", "shaw", "sinusoidal", CODE_TRANSFORMER, ALL])
def test_a_source_in_a_batch_is_as_it_is_alone(encoding):
    model, batch = make(encoding), source()
    found = model(**batch)
    for row, (tokens, nodes) in enumerate([(7, 9), (4, 5)]):
        alone = {name: values[row : row + 1, :tokens] for name, values in batch.items()}
        alone |= {name: batch[name][row : row + 1, :nodes] for name in ("parents", "node_types")}
        alone["edges"] = alone["edges"][..., :tokens]
        torch.testing.assert_close(found[row, :tokens], model(**alone)[0])


@pytest.mark.parametrize("key", sorted(ALL))
def test_every_relation_counts_and_learns(key):
    model, batch = make({key: ALL[key]}), source()
    model(**batch).square().sum().backward()
    for block in model.blocks:
        for name, parameter in block.attention.encoding.named_parameters():
            assert parameter.grad.abs().max() > 0, name
    plain = make("none")
    state = {name: value for name, value in model.state_dict().items() if ".encoding." not in name}
    plain.load_state_dict(state)
    inside = ~batch["key_padding_mask"]
    assert not torch.allclose(model(**batch)[inside], plain(**batch)[inside])


def test_words_add_up_and_a_hidden_name_has_a_vector_of_its_own():
    model = make("none", depth=1, node_types=None)
    table = model.words.weight
    words = torch.tensor([[[3, 4, 0], [5, 0, 0], [0, 0, 0]]])
    embedded = model._embed(words, None, None, None)
    torch.testing.assert_close(embedded[0], torch.stack((table[3] + table[4], table[5], table[0])))


def test_types_of_the_node_and_of_the_one_above_it_are_added():
    model = make("none", depth=1)
    batch = source(((3, 4),))
    batch["node_of_token"][0] = torch.tensor([0, 3, -1])
    kinds, parents = batch["node_types"][0], batch["parents"][0]
    embedded = model._embed(*(batch[name] for name in ("words", "parents", "node_of_token", "node_types")))
    own, above = (table.weight for table in model.types)
    without = make("none", depth=1, node_types=None)
    without.words = model.words
    words = without._embed(batch["words"], None, None, None)[0]
    expected = torch.stack((own[kinds[0]] + above[0], own[kinds[3]] + above[kinds[parents[3]]], own[0] + above[0]))
    torch.testing.assert_close(embedded[0] - words, expected)


def test_one_encoding_alone_is_over_offsets():
    assert make("shaw").blocks[0].attention.encoding.relation == Sequence()


def test_a_built_encoding_is_shared():
    encoding = Shaw(2, 8)
    model = SourceTransformer(encoding, **SMALL)
    assert all(block.attention.encoding is encoding for block in model.blocks)


def test_a_built_encoding_of_other_relations_is_refused():
    for key, relation in (("kind", Pairs(5)), ("hops", Pairs(5))):
        encoding = create_encoding({key: "table"}, num_heads=2, head_dim=8, relation={key: relation})
        with pytest.raises(ValueError, match=f"of source code is over some of .* got {key}: Pairs"):
            SourceTransformer(encoding, **SMALL)


def test_the_model_says_how_many_types_of_edges_it_reads():
    assert make({"edges": "great", "offset": "shaw"}).edge_types == 3
    assert make({"offset": "shaw"}).edge_types is make("shaw").edge_types is None


@pytest.mark.parametrize("sizes", [((1, 1),), ((1, 1), (3, 2)), ((0, 1),)])
def test_one_token_and_none(sizes):
    batch = source(sizes)
    assert make(ALL)(**batch).isfinite().all()


def test_half_precision_and_other_devices():
    model = SourceTransformer(ALL, **SMALL, device="meta").to_empty(device="cpu")
    model.reset_parameters()
    found = model.bfloat16()(**source())
    assert found.dtype == torch.bfloat16
    assert found.isfinite().all()


def test_the_start_is_drawn_anew():
    torch.manual_seed(0)
    model = SourceTransformer("learned", **{**SMALL, "num_words": 500, "node_types": 500, "max_length": 500})
    first = {name: value.clone() for name, value in model.state_dict().items()}
    model.reset_parameters()
    again = model.state_dict()
    assert [name for name in first if first[name].ndim > 1 and torch.equal(first[name], again[name])] == []
    for state in (first, again):
        for name in ("words.weight", "types.0.weight", "types.1.weight"):
            assert 0.48 < state[name].std() < 0.52


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda batch: batch.pop("edges"), "'edges' is made from edges, which must be given"),
        (lambda batch: batch.update(words=batch["words"][..., 0]), r"words must have shape \(B, N, W\)"),
        (lambda batch: batch["words"].fill_(20), "words must be from 0 to 19, got 20"),
        (lambda batch: batch["node_types"].fill_(6), "node_types must be from 0 to 5, got 6"),
        (lambda batch: batch.pop("node_types"), "is given parents, node_of_token and node_types"),
        (lambda batch: batch["edges"].fill_(8), "takes sets from 0 to 7, got 8"),
        (lambda batch: batch["node_of_token"].fill_(9), "node_of_token must be from -1 to 8, got 9"),
        (lambda batch: batch["node_of_token"].fill_(-2), "node_of_token must be from -1 to 8, got -2"),
        (lambda batch: batch.update(parents=batch["parents"][:1]), r"parents must have shape \(2, V\) .* got \(1, 9\)"),
        (lambda batch: batch.update(parents=batch["parents"][:, :0]), r"with at least one node, got \(2, 0\)"),
        (lambda batch: batch.update(parents=batch["parents"][:, :5]), r"node_(of_token|types) must "),
        *(
            (lambda batch, name=name: batch.update({name: batch[name][:, 1:]}), rf"{name} must have shape \(2, .* got")
            for name in ("node_of_token", "node_types", "edges")
        ),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    batch = source()
    change(batch)
    with pytest.raises(ValueError, match=message):
        make(ALL)(**batch)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"encoding": {"tre": "table"}}, "no relation of source code 'tre'; did you mean 'tree'"),
        ({"encoding": {"tree": "sinusoidal"}}, "applied at the input"),
        ({"encoding": "none", "dim": 15}, "dim must be a multiple of num_heads"),
        ({"encoding": "none", "num_words": 0}, "num_words"),
        ({"encoding": "none", "node_types": 0}, "node_types"),
        *(
            ({"encoding": "none", name: size - 1}, f"{name} must be an integer of at least {size}, got {size - 1}")
            for name, size in (("max_steps", 0), ("max_distance", 0), ("max_hops", 0), ("edge_types", 1))
        ),
        ({"encoding": Table(2, 8, Sequence(3)).__class__}, "limited number of codes"),
    ],
)
def test_wrong_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        SourceTransformer(**{**SMALL, **options})


def test_the_pointer_by_a_loop():
    torch.manual_seed(0)
    head, query, tokens = PointerHead(4).double(), torch.randn(2, 4).double(), torch.randn(2, 3, 4).double()
    found = head(query, tokens)
    for row in range(2):
        for token in range(3):
            expected = torch.dot(head.query(query[row]), head.key(tokens[row, token])) / 2.0
            torch.testing.assert_close(found[row, token], expected)


def test_classes_are_those_of_the_mean_without_padding():
    torch.manual_seed(0)
    head, tokens = ClassificationHead(4, 3).double(), torch.randn(2, 5, 4).double()
    padding = torch.tensor([[False] * 5, [False, False, True, True, True]])
    torch.testing.assert_close(head(tokens, padding)[1], head.linear(tokens[1, :2].mean(0)))
    torch.testing.assert_close(head(tokens, padding)[0], head(tokens)[0])
    one = torch.tensor([[False] + [True] * 4, [True] * 5])
    torch.testing.assert_close(head(tokens, one), head.linear(torch.stack((tokens[0, 0], torch.zeros(4).double()))))


def test_edges_as_a_list_are_refused():
    batch = source()
    batch["edges"] = (torch.zeros(2, 3), torch.zeros(3))
    with pytest.raises(ValueError, match=r"edges must be a tensor of shape \(2, 7, 7\), got a tuple"):
        make(ALL)(**batch)
