"""An index of some patches gives the terms that the index of all gives for them."""

import pytest
import torch
from tests.encodings.every import call, every

import relbias as rb
from relbias.relations import Grid, Volume

PATCHES = torch.tensor([[5, 0, 11], [2, 1, 7]])
"""Of each of two items, in no order."""


def rows(made, item):
    """The tokens that are there, prefix tokens first."""
    return torch.cat((torch.arange(made.prefix), made.prefix + PATCHES[item]))


@every(Grid, Volume)
@pytest.mark.parametrize("implementation", rb.list_implementations())
def test_some_patches_are_as_all_under_a_mask(made, implementation):
    """The patches that are not there are those that a mask hides from the whole grid."""
    layer, x = made.layer(implementation=implementation), made.input(made.tokens(0))
    kept = torch.stack([x[item, rows(made, item)] for item in range(2)])
    with torch.no_grad():
        out = call(layer, kept, index=made.relation().of(PATCHES))
        whole = made.layer()
        for item in range(2):
            hidden = torch.ones(1, x.shape[1], dtype=torch.bool)
            hidden[0, rows(made, item)] = False
            expected = whole(x[item : item + 1], index=made.relation(), key_padding_mask=hidden)[0, rows(made, item)]
            if out is not None:
                torch.testing.assert_close(out[item], expected, rtol=0, atol=1e-12)


@every(Grid, at_input=True)
def test_some_patches_at_the_input(made):
    encoding, x = made.encoding(), made.input(made.tokens(0))
    kept = torch.stack([x[item, rows(made, item)] for item in range(2)])
    index = made.relation().of(PATCHES)
    if made.name == "cpe":
        with pytest.raises(ValueError, match="'cpe' is a convolution over a whole grid"):
            encoding.embed(kept, index)
        return
    out, whole = encoding.embed(kept, index), encoding.embed(x)
    for item in range(2):
        torch.testing.assert_close(out[item], whole[item, rows(made, item)], rtol=0, atol=1e-12)


@pytest.mark.parametrize("relation", [Grid(3, 4, 2), Grid(3, 4, 0, 1), Volume(2, 2, 3, 1)])
@pytest.mark.parametrize("turn", [lambda index: index, lambda index: index.T])
def test_codes_of_some_patches(relation, turn):
    index, whole = turn(relation().of(PATCHES)), turn(relation()).codes()[0, 0]
    assert index.shape == (relation.prefix_tokens + 3,) * 2
    assert index.batch_heads == (2, 1)
    assert index.code_space == relation.code_space
    for item in range(2):
        tokens = torch.cat((torch.arange(relation.prefix_tokens), relation.prefix_tokens + PATCHES[item]))
        assert torch.equal(index.codes()[item, 0], whole[tokens][:, tokens])
        assert torch.equal(index.codes(slice(1, 3))[item, 0], whole[tokens[1:3]][:, tokens])


@pytest.mark.parametrize(
    ("patches", "message"),
    [
        (torch.tensor([0, 1]), r"\(B, n\), got \(2,\)"),
        (torch.tensor([[0.0]]), "must be integers"),
        (torch.tensor([[12]]), "a lattice of 3x4 are 0 to 11"),
        (torch.tensor([[-1]]), "a lattice of 3x4 are 0 to 11"),
    ],
)
def test_bad_patches(patches, message):
    with pytest.raises(ValueError, match=message):
        Grid(3, 4)().of(patches)
