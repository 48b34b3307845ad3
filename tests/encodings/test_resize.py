"""Tables for other sizes of their relation."""

import itertools

import pytest
import torch
from timm.layers import resample_abs_pos_embed

import relbias as rb
from relbias.encodings import Learned, Table
from relbias.encodings.resize import resize_table
from relbias.relations import Grid, Hops, Sequence, Volume


def table_of(grid, seed=0):
    return torch.randn(2, grid.num_codes, generator=torch.Generator().manual_seed(seed))


def as_offsets(table, grid):
    """{(dy, dx): (H,)} of a table, and what is left for prefix tokens."""
    offsets = [(dy, dx) for dy in range(1 - grid.height, grid.height) for dx in range(1 - grid.width, grid.width)]
    return dict(zip(offsets, table.T, strict=False)), table[:, len(offsets) :]


@pytest.mark.parametrize("new", [(5, 3), (3, 5), (2, 2), (7, 9), (1, 4)])
def test_patch_units_keep_each_offset_and_clamp_beyond(new):
    old, new = Grid(3, 4, prefix_tokens=2), Grid(*new, prefix_tokens=2)
    table = table_of(old)
    before, prefix = as_offsets(table, old)
    after, new_prefix = as_offsets(resize_table(table, old, new, "patch"), new)
    assert torch.equal(prefix, new_prefix)
    assert len(after) == new.num_codes - 8
    for (dy, dx), value in after.items():
        assert torch.equal(value, before[max(-2, min(2, dy)), max(-3, min(3, dx))])


def test_image_units_keep_offsets_that_are_the_same_part_of_the_image():
    old, new = Grid(3, 4, prefix_tokens=1), Grid(6, 8, prefix_tokens=1)
    table = table_of(old)
    before, prefix = as_offsets(table, old)
    after, new_prefix = as_offsets(resize_table(table, old, new, "image"), new)
    assert torch.equal(prefix, new_prefix)
    for (dy, dx), value in before.items():
        torch.testing.assert_close(after[2 * dy, 2 * dx], value, rtol=0, atol=1e-6)
    torch.testing.assert_close(after[5, 7], before[2, 3], rtol=0, atol=1e-6)  # beyond the edge
    back, _ = as_offsets(resize_table(resize_table(table, old, new, "image"), new, old, "image"), old)
    for offset, value in before.items():
        torch.testing.assert_close(back[offset], value, rtol=0, atol=1e-6)


def test_image_units_stretch_by_cubics():
    # A cubic convolution reproduces a straight line between its points.
    old, new = Grid(8, 1), Grid(16, 1)
    line = torch.arange(-7.0, 8.0)[None]
    after, _ = as_offsets(resize_table(line, old, new, "image"), new)
    for dy in range(-12, 13):
        torch.testing.assert_close(after[dy, 0], torch.tensor([dy / 2]), rtol=0, atol=1e-5)


@pytest.mark.parametrize("unit", ["patch", "image"])
def test_same_grid_and_clipped_grids_are_copied(unit):
    grid = Grid(4, 3, prefix_tokens=1)
    table = table_of(grid)
    torch.testing.assert_close(resize_table(table, grid, grid, unit), table, rtol=0, atol=1e-6)
    clipped = Grid(4, 3, max_distance=2)
    table = table_of(clipped)
    assert torch.equal(resize_table(table, clipped, clipped.resized(9, 9), unit), table)


def test_dtype_is_kept():
    grid = Grid(2, 2)
    assert resize_table(table_of(grid).bfloat16(), grid, Grid(3, 3), "image").dtype == torch.bfloat16


def test_volumes_keep_each_offset():
    old, new = Volume(2, 3, 4, prefix_tokens=1), Volume(4, 2, 8, prefix_tokens=1)
    table = table_of(old)
    offsets = lambda v: list(itertools.product(*(range(1 - size, size) for size in v.sizes)))  # noqa: E731
    before = dict(zip(offsets(old), table.T, strict=False))
    after = resize_table(table, old, new, "patch")
    assert torch.equal(after[:, -3:], table[:, -3:])
    for (dz, dy, dx), value in zip(offsets(new), after.T, strict=False):
        assert torch.equal(value, before[max(-1, min(1, dz)), dy, max(-3, min(3, dx))])
    stretched = dict(zip(offsets(new), resize_table(table, old, new, "image").T, strict=False))
    for (dz, dy, dx), value in before.items():
        if not dy:  # the heights 3 and 2 have no other offset in common
            torch.testing.assert_close(stretched[2 * dz, 0, 2 * dx], value, rtol=0, atol=1e-6)


def test_sequences_keep_each_offset_or_the_part_of_the_largest_distance():
    old, table = Sequence(max_distance=4), torch.arange(-4.0, 5.0)[None] ** 3
    longer = resize_table(table, old, Sequence(max_distance=6), "patch")
    assert longer[0].tolist() == [-64, -64, -64, -27, -8, -1, 0, 1, 8, 27, 64, 64, 64]
    assert resize_table(table, old, Sequence(max_distance=1), "patch")[0].tolist() == [-1, 0, 1]
    stretched = resize_table(table, old, Sequence(max_distance=8), "image")
    torch.testing.assert_close(stretched[:, ::2], table, rtol=0, atol=1e-5)
    assert resize_table(table, old, Sequence(max_distance=0), "image").tolist() == [[0.0]]
    assert resize_table(torch.ones(1, 1), Sequence(max_distance=0), old, "image").tolist() == [[1.0] * 9]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (Grid(2, 2), Grid(3, 3, prefix_tokens=1), "takes another size of it"),
        (Grid(2, 2), Grid(3, 3, max_distance=1), "takes another size of it"),
        (Grid(2, 2), Volume(1, 3, 3), "takes another size of it"),
        (Sequence(max_distance=2), Sequence(), "only tables over a Grid, a Volume or a Sequence with max_distance"),
        (Hops(3), Hops(4), "only tables over a Grid"),
        (Grid(2, 2), None, "takes another size of it, got None; give the whole relation"),
    ],
)
def test_a_table_refuses_what_is_not_another_size(old, new, message):
    encoding = Table(2, 4, old)
    table = encoding.table
    with pytest.raises(ValueError, match=message):
        encoding.resize(new)
    with pytest.raises(ValueError, match="got 3; give the whole relation" if isinstance(old, Grid) else "table"):
        encoding.resize(3, 3)  # as the timm plugin's resize takes a grid
    assert encoding.relation == old
    assert encoding.table is table


def test_a_table_refuses_an_unknown_unit():
    with pytest.raises(ValueError, match='"patch" or "image", got \'pixel\''):
        Table(2, 4, Grid(2, 2)).resize(Grid(3, 3), "pixel")


@pytest.mark.parametrize("trained", [True, False])
def test_a_resized_table_is_used(trained):
    relation = Grid(3, 3, prefix_tokens=1)
    encoding = Table(2, 4, relation, dtype=torch.float64).requires_grad_(trained)
    q, k, v = torch.randn(3, 1, 2, 10, 4, dtype=torch.float64)
    before = rb.relative_attention(q, k, v, encoding(relation()))
    with pytest.raises(ValueError, match="`resize`"):
        encoding.grid_index(5, 6)
    encoding.resize(Grid(5, 6, prefix_tokens=1))
    assert torch.equal(rb.relative_attention(q, k, v, encoding(encoding.grid_index(3, 3))), before)
    assert encoding(encoding.grid_index(5, 6)).names == ("b",)
    assert encoding.table.requires_grad == trained


def test_encodings_without_tables_of_a_size_note_it():
    for name in ("shaw", "irpe", "rope_axial", "alibi"):
        encoding = rb.create_encoding(name, 2, 4, Grid(3, 3, prefix_tokens=1))
        parameters = list(encoding.parameters())
        encoding.resize(Grid(7, 5, prefix_tokens=1), "image")
        assert encoding.relation == Grid(7, 5, prefix_tokens=1)
        assert all(a is b for a, b in zip(encoding.parameters(), parameters, strict=True))
        for other in (Grid(7, 5), Grid(7, 5, prefix_tokens=1, max_distance=2), Sequence()):
            with pytest.raises(ValueError, match=f"'{name}' over .* takes another size of it, got"):
                encoding.resize(other)
        with pytest.raises(ValueError, match="'pixel'"):
            encoding.resize(Grid(7, 5, prefix_tokens=1), "pixel")
    with pytest.raises(ValueError, match="'t5' over"):
        rb.create_encoding("t5", 2, 4).resize(Sequence(max_distance=9))


def test_swin_v2_keeps_the_window_that_it_divides_by():
    with pytest.raises(ValueError, match=r"give it pretrained_window=\(3, 4\)"):
        rb.create_encoding("swin_v2", 2, 4, Grid(3, 4)).resize(Grid(6, 6))
    encoding = rb.create_encoding("swin_v2", 2, 4, Grid(3, 4), pretrained_window=(3, 4))
    before = encoding(encoding.grid_index(6, 6)).entries[0].b
    encoding.resize(Grid(6, 6))
    assert torch.equal(encoding(encoding.grid_index(6, 6)).entries[0].b, before)


def test_a_sum_resizes_all_or_nothing():
    relation = {"grid": Grid(2, 3), "offset": Sequence(max_distance=3), "rest": Grid(2, 3)}
    encoding = rb.create_encoding({"grid": "table", "offset": "table", "rest": "swin_v2"}, 2, 4, relation)
    before = {key: value.clone() for key, value in encoding.state_dict().items()}
    for wrong, message in (
        ({"grid": Grid(4, 4), "rest": Grid(4, 4)}, "'swin_v2'"),
        ({"grid": Grid(4, 4), "else": Grid(4, 4)}, r"keys of \['grid', 'offset', 'rest'\], got \['else', 'grid'\]"),
        (Grid(4, 4), r"got Grid\(height=4"),
    ):
        with pytest.raises(ValueError, match=message):
            encoding.resize(wrong)
        assert encoding.relation == relation
        assert all(torch.equal(value, before[key]) for key, value in encoding.state_dict().items())
    encoding.resize({"grid": Grid(4, 4), "offset": Sequence(max_distance=5)})
    assert encoding.relation == {"grid": Grid(4, 4), "offset": Sequence(max_distance=5), "rest": Grid(2, 3)}
    assert encoding.encodings["grid"].table.shape == (2, 49)
    assert encoding.encodings["offset"].table.shape == (2, 11)


@pytest.mark.parametrize("new", [(6, 8), (2, 3), (3, 9), (1, 1)])
def test_learned_positions_are_read_in_the_image_like_timms(new):
    encoding = Learned(2, 4, Grid(3, 4, prefix_tokens=2), dtype=torch.float64)
    expected = resample_abs_pos_embed(encoding.table[None], list(new), [3, 4], 2, antialias=False)[0]
    encoding.resize(Grid(*new, prefix_tokens=2), "image")
    torch.testing.assert_close(encoding.table, expected, rtol=0, atol=1e-7)
    assert encoding.embed(torch.zeros(1, 2 + new[0] * new[1], 8)).shape[2] == 8


def test_learned_positions_keep_their_place_in_patches():
    encoding = Learned(1, 1, Grid(2, 3, prefix_tokens=1))
    encoding.table.data = torch.tensor([[9.0], [0], [1], [2], [10], [11], [12]])
    encoding.resize(Grid(3, 4, prefix_tokens=1))
    assert encoding.table[:, 0].tolist() == [9, 0, 1, 2, 2, 10, 11, 12, 12, 10, 11, 12, 12]
    encoding.resize(Grid(1, 2, prefix_tokens=1))
    assert encoding.table[:, 0].tolist() == [9, 0, 1]
    with pytest.raises(ValueError, match="another height and width"):
        Learned(1, 1, max_length=4).resize(Sequence())
    with pytest.raises(ValueError, match="another height and width"):
        encoding.resize(Grid(3, 4))
