"""An item's output is its own: not its neighbours', not its padding's, and no matter how its nodes are numbered."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.encodings.every import DIM, call, every, of_items, of_nodes
from tests.encodings.test_translation import DEPENDS_ON_PLACE

import relbias as rb
from relbias.relations import Grid, Sequence, Volume


def close(out, expected):
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)


@every()
def test_a_batch_is_its_items(made):
    n = made.tokens(7)
    layer, x, values = made.layer(), made.input(n, batch=3), made.values(3, n)
    order = torch.tensor([2, 0, 1])
    with torch.no_grad():
        out = layer(x, index=made.index(n, values))
        for item in range(3):
            own = slice(item, item + 1)
            close(layer(x[own], index=made.index(n, of_items(values, own))), out[own])
        close(layer(x[order], index=made.index(n, of_items(values, order))), out[order])


@every(at_input=True)
def test_a_batch_is_its_items_at_the_input(made):
    encoding, x = made.encoding(), made.input(made.tokens(7), batch=3)
    with torch.no_grad():
        out = encoding.embed(x)
        assert out.shape == x.shape
        assert not torch.equal(out, x)
        for item in range(3):
            close(encoding.embed(x[item : item + 1]), out[item : item + 1])


@every(where=lambda made: made.prefix == 0 or not isinstance(made.relation, Grid | Volume))
@pytest.mark.parametrize("implementation", rb.list_implementations())
def test_one_token(made, implementation):
    """It attends to itself, whatever is added to the one logit; vectors added to the values alone can matter."""
    layer, x, index = made.layer(implementation=implementation), made.input(1), made.index(1, made.values(2, 1))
    with torch.no_grad():
        out = call(layer, x, index=index)
        if out is not None:
            attends_to_itself = torch.allclose(out, layer.out_proj(layer.v_proj(x)), rtol=0, atol=1e-12)
            assert attends_to_itself != ("V" in made.terms(layer.encoding, index, layer).names)


@every(where=lambda made: made.prefix == 0 and not isinstance(made.relation, Grid | Volume))
@pytest.mark.parametrize("implementation", rb.list_implementations())
def test_no_token(made, implementation):
    layer, x = made.layer(implementation=implementation), made.input(0).requires_grad_()
    out = call(layer, x, index=made.index(0, made.values(2, 0)))
    if out is not None:
        assert out.shape == (2, 0, DIM)
        out.sum().backward()
        assert x.grad.shape == x.shape


@every()
def test_no_item(made):
    n = made.tokens(5)
    with torch.no_grad():
        assert made.layer()(made.input(n, batch=0), index=made.index(n, made.values(0, n))).shape == (0, n, DIM)


@every(Sequence)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_sequences_with_positions_are_as_alone(made, side):
    check_padded(made, side, given_positions=True)


@every(Sequence, without=DEPENDS_ON_PLACE)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_sequences_are_as_alone(made, side):
    check_padded(made, side, given_positions=False)


def check_padded(made, side, given_positions):
    lengths, n = (9, 6, 1), 9
    layer, x = made.layer(), made.input(n, batch=3)
    starts = [n - length if side == "left" else 0 for length in lengths]
    places = torch.arange(n)[None] - torch.tensor(starts)[:, None]
    padding = (places < 0) | (places >= torch.tensor(lengths)[:, None])
    positions = {"positions": places.masked_fill(padding, 0)} if given_positions else {}
    with torch.no_grad():
        out = layer(x, key_padding_mask=padding, is_causal=True, **positions)
        for item in range(3):
            real = ~padding[item]
            close(out[item : item + 1, real], layer(x[item : item + 1, real], is_causal=True))


@every(where=lambda made: made.pairwise)
def test_padded_graphs_are_as_alone(made):
    n, sizes, p = 8, (8, 5), made.prefix
    layer, x, values = made.layer(), made.input(n), made.values(2, n)
    # Prefix tokens come first, so that padding is at the right alone.
    for side in ("right", "left") if p == 0 else ("right",):
        real = [slice(n - size, n) if side == "left" else slice(0, size) for size in sizes]
        padding = torch.ones(2, n, dtype=torch.bool)
        for item, own in enumerate(real):
            padding[item, own] = False
        with torch.no_grad():
            out = layer(x, index=made.index(n, values), key_padding_mask=padding)
            for item, own in enumerate(real):
                nodes = slice(own.start, own.stop - p)
                alone = made.index(sizes[item], of_nodes(of_items(values, slice(item, item + 1)), nodes))
                close(out[item : item + 1, own], layer(x[item : item + 1, own], index=alone))


@every(where=lambda made: made.pairwise)
@settings(max_examples=5, deadline=None, derandomize=True)
@given(order=st.permutations(range(6)), masked=st.lists(st.booleans(), min_size=6, max_size=6))
def test_the_order_of_nodes_does_not_matter(made, order, masked):
    p = made.prefix
    n = 6 + p
    layer, x, values = made.layer(), made.input(n), made.values(2, n)
    padding = torch.tensor([False] * p + masked).expand(2, n)
    allowed = torch.rand(2, 1, n, n, generator=torch.Generator().manual_seed(4)) > 0.2
    nodes = torch.tensor(order)
    tokens = torch.cat((torch.arange(p), nodes + p))
    with torch.no_grad():
        out = layer(x, index=made.index(n, values), key_padding_mask=padding, attn_mask=allowed)
        other = layer(
            x[:, tokens],
            index=made.index(n, of_nodes(values, nodes)),
            key_padding_mask=padding[:, tokens],
            attn_mask=allowed[:, :, tokens][..., tokens],
        )
    close(other, out[:, tokens])
    if layer.encoding(made.index(n, values)).names:
        relabelled = layer(x, index=made.index(n, of_nodes(values, nodes.roll(1))), attn_mask=allowed)
        assert (relabelled - layer(x, index=made.index(n, values), attn_mask=allowed)).abs().max() > 1e-4


@every(Grid, Volume, without=["none"])
def test_the_order_of_patches_matters(made):
    n = made.tokens(0)
    layer, x = made.layer(), made.input(n)
    tokens = torch.cat((torch.arange(made.prefix), torch.arange(made.prefix, n).roll(1)))
    with torch.no_grad():
        assert (layer(x[:, tokens]) - layer(x)[:, tokens]).abs().max() > 1e-3
