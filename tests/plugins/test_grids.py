"""Reading a table at the codes of another grid."""

import pytest
import torch

from relbias.plugins.grids import resize_table
from relbias.relations import Grid


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
