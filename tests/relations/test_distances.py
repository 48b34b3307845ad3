"""Distances and types given for pairs."""

from __future__ import annotations

import pytest
import torch

from relbias.relations import Distances, GraphBatch


@pytest.mark.parametrize("types_dtype", [torch.int8, torch.uint8, torch.int64])
@pytest.mark.parametrize("shape", [(2, 3), (4, 2, 3), (0, 0), (4, 0, 3)])
def test_gives_what_it_was_given(shape, types_dtype):
    distances, types = torch.rand(*shape), torch.randint(0, 5, shape).to(types_dtype)
    index = Distances(5)(distances, types)
    full = (distances, types) if len(shape) == 3 else (distances[None], types[None])
    assert (index.shape, index.num_codes) == (shape[-2:], 5)
    assert torch.equal(index.distances(slice(1, 2)), full[0][:, 1:2])
    assert torch.equal(index.codes(slice(1, 2)), full[1][:, None, 1:2].long())
    assert not Distances()(distances).codes().any()
    assert Distances()(distances).codes().shape == (1, 1, *shape[-2:])


def test_types_of_one_molecule_serve_a_batch_of_its_shapes():
    index = Distances(2)(torch.rand(3, 4, 4), torch.ones(4, 4, dtype=torch.long))
    assert index.distances().shape == (3, 4, 4)
    assert index.codes().shape == (1, 1, 4, 4)


def test_transposed():
    distances, types = torch.rand(2, 4, 4), torch.randint(0, 3, (2, 4, 4))
    index = Distances(3)(distances, types).T
    assert torch.equal(index.distances(), distances.mT)
    assert torch.equal(index.codes(), types[:, None].mT)


def in_space(pos):
    return GraphBatch(torch.zeros(2, 0, dtype=torch.long), 5, torch.tensor([0, 0, 0, 1, 1]), pos=pos)


def test_of_graphs():
    pos = torch.randn(5, 3, dtype=torch.float64)
    index = Distances().of_graphs(in_space(pos))
    expected = (pos[:, None] - pos).norm(dim=-1)
    torch.testing.assert_close(index.distances()[0], expected[:3, :3])
    torch.testing.assert_close(index.distances()[1, :2, :2], expected[3:, 3:])
    assert not index.codes().any()


def test_pairs_with_a_prefix_token_have_a_type_of_their_own():
    pos = torch.randn(5, 3)
    alone, index = (Distances(prefix_tokens=p).of_graphs(in_space(pos)) for p in (0, 2))
    assert (index.shape, index.num_codes, index.code_space) == ((5, 5), 2, Distances(1, 2).code_space)
    assert torch.equal(index.distances()[:, 2:, 2:], alone.distances())
    codes = index.codes().expand(2, 1, 5, 5)
    assert not codes[..., 2:, 2:].any()
    assert codes.sum() == 2 * (25 - 9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Distances(0), "num_types must be an integer of at least 1, got 0"),
        (lambda: Distances(2)(torch.zeros(2, 2)), "needs the types of the pairs; pass types="),
        (lambda: Distances()(torch.zeros(2, 2, dtype=torch.long)), "must be floating, got torch.int64"),
        (lambda: Distances()(torch.zeros(2)), r"\(N, M\) or \(B, N, M\), got \(2,\)"),
        (lambda: Distances()(torch.tensor([[torch.inf]])), "must be finite"),
        (lambda: Distances(2)(torch.zeros(2, 2), torch.full((2, 2), 2)), "types from 0 to 1, got 2 to 2"),
        (lambda: Distances(2)(torch.zeros(2, 2), torch.full((2, 2), -1)), "types from 0 to 1, got -1 to -1"),
        (lambda: Distances(2)(torch.zeros(2, 2), torch.zeros(2, 3, dtype=torch.long)), "does not fit the distances'"),
        (lambda: Distances(2)(torch.zeros(2, 2), torch.zeros(3, 2, 2, dtype=torch.long)), "does not fit"),
        (lambda: Distances(2)(torch.zeros(2, 2), torch.zeros(1, 3, 2, 2, dtype=torch.long)), r"got \(1, 3, 2, 2\)"),
        (lambda: Distances(2)(torch.zeros(2, 2), torch.zeros(2, 2)), "types must be integers"),
        (lambda: Distances(1, -1), "prefix_tokens must be an integer of at least 0, got -1"),
        (lambda: Distances().of_graphs(in_space(None)), "the graphs have no pos"),
        (lambda: Distances().of_graphs(in_space(torch.zeros(4, 3))), r"pos has shape \(5, S\), got \(4, 3\)"),
        (lambda: Distances().of_graphs(in_space(torch.full((5, 3), torch.nan))), "must be finite"),
        (lambda: Distances(2).of_graphs(in_space(torch.zeros(5, 3))), "needs the types of the pairs"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()
