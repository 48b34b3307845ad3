"""Long sequences: the same codes and angles in every precision, and what an encoding's `extrapolation` promises."""

from dataclasses import replace

import pytest
import torch
from tests.encodings.every import DIM, Made, all_made, every

import relbias as rb
from relbias.encodings.base import find_encoding
from relbias.relations import EdgeSets, Grid, Hops, Pairs, Sequence, Volume

LONG = {Grid: Grid(64, 64), Volume: Volume(16, 16, 16)}
"""4,096 tokens each."""
LINE = {Grid: Grid(1, 48), Volume: Volume(1, 1, 48)}
PROJECTED = {"cope", "deberta"}
"""Made by the layer's own projections, which round in half precision: of these only codes and angles are equal."""
GOES_ON = {"music_transformer": "a distance beyond the table has no vector, and the call goes on without it"}
"""Encodings without extrapolation that do not refuse a longer call."""


def extrapolates(*kinds):
    return lambda made: made.prefix == 0 and find_encoding(made.name).extrapolation in kinds


def equal_terms(half, full, rows, values):
    """Whether codes, angles and, if asked for, all numbers of some rows are equal bit for bit."""
    assert half.names == full.names
    for mine, theirs in zip(half.entries, full.entries, strict=True):
        if mine.index is not None:
            assert torch.equal(mine.index.codes(rows), theirs.index.codes(rows))
        if mine.rotation is not None:
            assert mine.rotation.q_angles.dtype == torch.float64
            assert torch.equal(mine.rotation.q_angles, theirs.rotation.q_angles)
            assert torch.equal(mine.rotation.k_angles, theirs.rotation.k_angles)
        for name in set(mine.names) - {"rotation"} if values else ():
            b, other = (x(rows) if callable(x) else x for x in (getattr(mine, name), getattr(theirs, name)))
            assert torch.equal(b.double(), other.double())


@every(Sequence, Grid, Volume, variants=False, where=lambda made: made.prefix == 0)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_has_the_codes_angles_and_terms_of_float32(made, dtype):
    # With the options of a real model, not those of small tests.
    made = Made(made.name, LONG.get(type(made.relation), made.relation))
    layer = made.layer().to(dtype)  # rounds its parameters once; both have the same
    index, last = made.index(4096), slice(4094, 4096)
    with torch.no_grad():
        half = made.terms(layer.encoding, index, layer)
        full = made.terms(layer.float().encoding, index, layer)
        equal_terms(half, full, last, values=made.name not in PROJECTED)


@every(Sequence, without=["cope"])
def test_far_positions_are_exact_in_half_precision(made):
    index = made.relation(5, 5, torch.tensor([0, 1, 40_001, 65_534, 65_535]))
    layer = made.layer().bfloat16()
    half = made.terms(layer.encoding, index, layer)
    full = made.terms(layer.float().encoding, index, layer)
    equal_terms(half, full, slice(0, 5), values=made.name not in PROJECTED)


@every(at_input=True)
def test_encodings_at_the_input_are_exact_in_half_precision(made):
    half, full = made.encoding().bfloat16(), made.encoding().bfloat16().float()
    x, index = made.input(made.tokens(32), batch=1).bfloat16(), made.index(32)
    with torch.no_grad():
        mine, theirs = half.added(x, index), full.added(x.float(), index)
        assert mine.any()
        assert torch.equal(mine.double(), theirs.double())


def logits_far_away(made):
    """Of equal tokens: the last query's for the farthest and the second farthest key, each (H,)."""
    index = None
    if isinstance(made.relation, Sequence):
        index = made.relation(48, 48, torch.arange(48) * 2000)
    else:
        made = replace(made, relation=LINE[type(made.relation)])
    layer, x = made.layer(), made.input(1, batch=1).expand(1, 48, DIM)
    with torch.no_grad(), rb.capture(layer) as captured:
        layer(x, index=index)
    return captured[0].logits[0, :, -1, :2].unbind(dim=-1)


@every(Sequence, Grid, Volume, variants=False, where=extrapolates("clipped"))
def test_far_distances_share_a_code_where_clipped(made):
    farthest, next_one = logits_far_away(made)
    torch.testing.assert_close(farthest, next_one, rtol=0, atol=1e-12)


@every(Sequence, Grid, Volume, variants=False, without=["none"], where=extrapolates("formula"))
def test_far_distances_differ_where_a_formula_goes_on(made):
    farthest, next_one = logits_far_away(made)
    assert (farthest - next_one).abs().max() > 1e-6


@every(Grid, Volume, where=extrapolates("formula", "clipped"))
def test_grids_of_twice_the_size(made):
    layer = made.layer()
    index = made.relation.resized(*(2 * getattr(made.relation, axis) for axis in made.relation.axes))()
    assert layer(made.input(index.shape[0]), index=index).isfinite().all()


def too_much(made):
    """Calls the encoding with one thing that it was not built for."""
    relation = made.relation
    if isinstance(relation, Grid | Volume):
        relation(*(2 * getattr(relation, axis) for axis in relation.axes))
    elif isinstance(relation, Pairs):
        relation(torch.full((1, 1), relation.num_codes))
    else:
        relation(torch.full((1, 1), 2**relation.num_types))


@every(Grid, Volume, Pairs, EdgeSets, without=["none"], where=extrapolates("none"))
def test_what_does_not_extrapolate_is_refused(made):
    with pytest.raises(ValueError, match=r"exceed|larger|takes|more") as caught:
        too_much(made)
    assert "\n" not in str(caught.value)
    n = made.tokens(4) + 1
    with pytest.raises(ValueError, match="index") as caught:
        made.layer()(made.input(n))
    assert "\n" not in str(caught.value)


@every(Sequence, Hops, without=GOES_ON, where=extrapolates("none"))
def test_limited_relations_clip_for_encodings_that_do_not_extrapolate(made):
    limit = made.relation.max_distance
    assert limit is not None
    layer = made.layer()
    x = made.input(1, batch=1).expand(1, 2, DIM)
    far = [limit + 1, 2 * limit + 1]
    if isinstance(made.relation, Hops):
        outs = [layer(x, index=made.relation(torch.tensor([[0, d], [d, 0]]))) for d in far]
    else:
        outs = [layer(x, positions=torch.tensor([0, d])) for d in far]
    assert torch.equal(*outs)


@every(at_input=True, where=extrapolates("none", "formula", "clipped"))
def test_twice_the_length_at_the_input(made):
    encoding = made.encoding()
    if isinstance(made.relation, Sequence):
        index, n = made.relation(64), 64
    else:
        index = made.relation.resized(*(2 * getattr(made.relation, axis) for axis in made.relation.axes))()
        n = index.shape[0]
    if encoding.extrapolation == "none":
        with pytest.raises(ValueError, match=f"'{made.name}'") as caught:
            encoding.embed(made.input(n), index)
        assert "\n" not in str(caught.value)
    else:
        assert encoding.embed(made.input(n), index).isfinite().all()


@pytest.mark.parametrize("name", GOES_ON)
def test_a_distance_without_a_vector_adds_nothing(name):
    (made,) = [made for made in all_made() if made.name == name]
    layer, x = made.layer(), made.input(2)
    plain = rb.RelativeAttention(DIM, layer.num_heads).double()
    plain.load_state_dict({key: value for key, value in layer.state_dict().items() if "encoding" not in key})
    far = torch.tensor([0, made.options["max_distance"] + 1])
    with torch.no_grad():
        out, without = layer(x, positions=far, is_causal=True), plain(x, is_causal=True)
        assert (out[:, 1] - without[:, 1]).abs().max() > 1e-3  # its own distance, 0, has one
        layer.encoding.keys[:, 0] = 0.0
        torch.testing.assert_close(layer(x, positions=far, is_causal=True), without, rtol=0, atol=1e-12)
