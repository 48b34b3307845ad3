"""Attention does not depend on where the tokens lie, only on the offsets between them; the exceptions are listed."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.encodings.every import DIM, HEADS, all_made, every, names

import relbias as rb
from relbias.relations import Grid, Sequence, Volume

DEPENDS_ON_PLACE = {
    "fire": "distances are relative to the position of the query",
    "rope_dynamic": "the base grows with the largest position",
    "rope_longrope": "the largest position chooses between two lists",
}
SEES_PLACES_FROM_PREFIX = {
    "rope_axial": "a prefix token stands at angle 0 and the patches turn relative to it",
    "rope_mixed": "a prefix token stands at angle 0 and the patches turn relative to it",
}
PLACES = st.lists(st.integers(0, 30), min_size=7, max_size=7)


def test_every_encoding_is_among_the_tested():
    tested = {made.name for at_input in (False, True) for made in all_made(at_input=at_input)}
    assert tested == set(names())


def test_encodings_say_whether_offsets_alone_matter():
    over_sequences = [made for made in all_made() if isinstance(made.relation, Sequence)]
    assert {made.name for made in over_sequences if not made.encoding().offsets_only} == set(DEPENDS_ON_PLACE)
    mixed = rb.create_encoding({"far": "alibi", "near": "fire"}, HEADS, 8)
    assert not mixed.offsets_only
    assert rb.create_encoding({"far": "alibi", "turn": "rope"}, HEADS, 8).offsets_only


def rotates(made):
    return "rotation" in made.terms(made.encoding(), made.index(7), made.layer()).names


def same(made, out, other, shift):
    """Equal to the last bit, but for angles, which grow with the positions and lose what float64 cannot hold."""
    if rotates(made):
        torch.testing.assert_close(other, out, rtol=0, atol=1e-12 + 1e-14 * abs(shift))
    else:
        assert torch.equal(other, out)


@every(Sequence, without=DEPENDS_ON_PLACE)
@settings(max_examples=6, deadline=None, derandomize=True)
@given(places=PLACES, shift=st.integers(-(10**6), 10**6), far=st.booleans())
def test_shifted_positions(made, places, shift, far):
    shift = shift << 20 if far and not rotates(made) else shift
    layer, x, positions = made.layer(), made.input(7), torch.tensor(places)
    with torch.no_grad():
        same(made, layer(x, positions=positions), layer(x, positions=positions + shift), shift)


@every(Sequence)
def test_given_positions_are_the_default_ones_shifted(made):
    layer, x, places = made.layer(), made.input(9), torch.arange(9)
    with torch.no_grad():
        torch.testing.assert_close(layer(x, positions=places), layer(x), rtol=0, atol=1e-12)
        if made.name not in DEPENDS_ON_PLACE:
            torch.testing.assert_close(layer(x, positions=places + 1000), layer(x), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", DEPENDS_ON_PLACE)
def test_the_exceptions_depend_on_the_place(name):
    (made,) = [made for made in all_made() if made.name == name]
    layer, x, positions = made.layer(), made.input(7), torch.arange(7)
    with torch.no_grad():
        assert (layer(x, positions=positions + 10**5) - layer(x, positions=positions)).abs().max() > 1e-4


@pytest.mark.parametrize("name", ["rope_dynamic", "rope_longrope"])
def test_lengths_matter_beyond_the_original_one_alone(name):
    (made,) = [made for made in all_made() if made.name == name]
    original, layer, x = made.options["original_max_position_embeddings"], made.layer(), made.input(7)
    with torch.no_grad():
        out = layer(x)
        last_within = original - 7
        torch.testing.assert_close(layer(x, positions=torch.arange(7) + last_within), out, rtol=0, atol=1e-12)
        beyond = layer(x, positions=torch.arange(7) + last_within + 1)
        assert (beyond - out).abs().max() > 1e-5
        farther = layer(x, positions=torch.arange(7) + 10 * original)
        if name == "rope_longrope":  # has one list for all that is beyond
            torch.testing.assert_close(farther, beyond, rtol=0, atol=1e-12)
        else:
            assert (farther - beyond).abs().max() > 1e-4


@every(Sequence, Grid, at_input=True)
def test_encodings_at_the_input_depend_on_the_place(made):
    encoding = made.encoding()
    if isinstance(made.relation, Sequence):
        x = torch.zeros(1, 7, DIM, dtype=torch.float64)
        out, shifted = (encoding.embed(x, made.relation(7, 7, torch.arange(7) + shift)) for shift in (0, 5))
        assert (shifted - out).abs().max() > 1e-2
        return
    vectors = encoding.embed(torch.ones(1, made.tokens(0), DIM, dtype=torch.float64))[0]
    assert (vectors[made.prefix] - vectors[made.prefix + 1 :]).abs().amax(dim=1).min() > 1e-2


def logits_of_equal_tokens(layer, index):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(1, 1, DIM, dtype=torch.float64, generator=generator).expand(1, index.shape[0], DIM)
    with torch.no_grad(), rb.capture(layer) as captured:
        layer(x, index=index)
    return captured[0].logits[0]


def offsets_of(sizes):
    """Of each pair of patches, counted in loops: the offset along each axis, (patches, patches, axes)."""
    places = torch.cartesian_prod(*(torch.arange(size) for size in sizes)).view(-1, len(sizes))
    return places[:, None] - places[None]


@every(Grid, Volume)
def test_the_same_offset_anywhere_in_grids_and_volumes(made):
    layer, p = made.layer(), made.prefix
    sizes = tuple(getattr(made.relation, axis) for axis in made.relation.axes)
    smaller = tuple(size - 1 for size in sizes)
    by_offset = {}
    for call in (sizes, smaller):
        logits = logits_of_equal_tokens(layer, made.relation(*call))[:, p:, p:]
        for offset, values in zip(offsets_of(call).flatten(0, 1).tolist(), logits.flatten(1).T.unbind(), strict=True):
            torch.testing.assert_close(values, by_offset.setdefault(tuple(offset), values), rtol=0, atol=1e-12)
    assert len(by_offset) == torch.tensor([2 * size - 1 for size in sizes]).prod()
    if made.encoding()(made.relation()).names:
        spread = torch.stack(list(by_offset.values())).std(dim=0)
        assert spread.shape == (HEADS,)
        assert spread.max() > 1e-3


@every(Grid, Volume)
def test_pairs_with_prefix_tokens_have_no_offset(made):
    p = made.prefix
    if not p:
        return
    logits = logits_of_equal_tokens(made.layer(), made.relation())
    for pairs in (logits[:, 0, p:], logits[:, p:, 0]):
        spread = (pairs.amax(dim=1) - pairs.amin(dim=1)).max()
        if made.name in SEES_PLACES_FROM_PREFIX:
            assert spread > 1e-3
        else:
            assert spread < 1e-12
