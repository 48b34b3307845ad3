import pytest
import torch

from relbias.encodings import CPE
from relbias.relations import Grid, Sequence
from relbias.testing import InputEncodingTestCase


class TestCPE(InputEncodingTestCase):
    encoding = CPE
    relation = Grid(3, 4, prefix_tokens=2)

    def embedded(self, encoding, x, index):
        out, p = [x[:, t] for t in range(index.prefix_tokens)], index.prefix_tokens
        for y in range(index.height):
            for column in range(index.width):
                total = x[:, p + y * index.width + column] + encoding.bias
                for dy in (-1, 0, 1):
                    for dx in (-1, 0, 1):
                        if 0 <= y + dy < index.height and 0 <= column + dx < index.width:
                            neighbour = x[:, p + (y + dy) * index.width + column + dx]
                            total = total + encoding.weight[:, 0, dy + 1, dx + 1] * neighbour
                out.append(total)
        return torch.stack(out, dim=1)


def test_any_size_of_grid():
    encoding = CPE(2, 4, Grid(3, 3, prefix_tokens=1))
    assert encoding.embed(torch.zeros(1, 1 + 5 * 7, 8), encoding.grid_index(5, 7)).shape == (1, 36, 8)
    with pytest.raises(ValueError, match="pass index="):
        encoding.embed(torch.zeros(1, 36, 8))


def test_is_of_grids():
    with pytest.raises(ValueError, match="'cpe' takes the relation Grid"):
        CPE(2, 4, Sequence())
