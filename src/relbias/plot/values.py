"""What an encoding says about each pair of tokens, as numbers that can be drawn."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from relbias.encodings import Encoding
from relbias.relations import Grid, Relation, Sequence
from relbias.relations.base import ALL_ROWS
from relbias.terms import Entry

_COMMON_PARTS = ("network", "attention", "attn", "encoding", "encodings")
SEQUENCE_LENGTH = 64  # tokens; a sequence has no length of its own
DESCRIPTIONS = {
    "b": "bias b",
    "K": "norm of K",
    "Q": "norm of Q",
    "V": "norm of V",
    "rotation": "mean cosine of the rotation angles",
}


def short_name(name: str) -> str:
    """The place of a module without the parts that are the same in every model.

    Args:
        name: as in named_modules.

    Example:
        >>> short_name("network.blocks.0.attention.encoding")
        'blocks.0'
    """
    return ".".join(part for part in name.split(".") if part not in _COMMON_PARTS) or name


@dataclass(frozen=True)
class Layer:
    """One term of one encoding.

    Args:
        name: the encoding's place in the model.
        term: ``"b"``, ``"K"``, ``"Q"``, ``"V"`` or ``"rotation"``.
        relation: a Sequence or a Grid.
        values: (H or 1, N, M), float64. For b the bias; for K, Q and V, which meet queries, keys and weights that are
            not known here, the norm of the vector that the pair gets; for a rotation the mean cosine of the angles
            between the pair, which is the logit of equal q and k of norm 1 with equal components. Infinite biases
            are NaN.
    """

    name: str
    term: str
    relation: Relation
    values: np.ndarray

    @property
    def title(self) -> str:
        """The name without the parts that are the same in every model, such as ``blocks.0``."""
        return short_name(self.name)

    def offsets(self) -> np.ndarray:
        """The values by offset.

        Returns:
            For a Sequence (H or 1, N + M - 1), at j - i + N - 1; for a Grid (H or 1, 2 height - 1, 2 width - 1), at
            (y_i - y_j + height - 1, x_i - x_j + width - 1), prefix tokens left out. The mean where pairs of the same
            offset differ.
        """
        if isinstance(self.relation, Grid):
            grid = Grid(self.relation.height, self.relation.width)
            p, shape = self.relation.prefix_tokens, (2 * grid.height - 1, 2 * grid.width - 1)
            codes = grid().codes()[0, 0].numpy()
            values = self.values[:, p:, p:]
        else:
            n = self.values.shape[1]
            codes, shape, values = np.arange(n)[None] - np.arange(n)[:, None] + n - 1, (2 * n - 1,), self.values
        flat, size = values.reshape(len(values), -1), int(np.prod(shape))
        sums = np.stack([np.bincount(codes.ravel(), weights=head, minlength=size) for head in flat])
        return (sums / np.bincount(codes.ravel(), minlength=size)).reshape(-1, *shape)


@torch.no_grad()
def layers(model: nn.Module) -> list[Layer]:
    """Evaluates the encodings of a model, one that layers share only once; what needs a batch is told and left out.

    Args:
        model: any module with encodings over sequences or grids in it.

    Raises:
        ValueError: there is nothing to draw: no encoding, or none that gives terms without a batch.

    Example:
        >>> from relbias.encodings import Table
        >>> [layer] = layers(Table(num_heads=2, head_dim=8, relation=Grid(4, 4, prefix_tokens=1)))
        >>> layer.term, layer.values.shape, layer.offsets().shape
        ('b', (2, 17, 17), (2, 7, 7))
    """
    found, without = [], []
    for name, encoding in model.named_modules():
        if not isinstance(encoding, Encoding) or any(isinstance(m, Encoding) for m in list(encoding.modules())[1:]):
            continue  # a sum is drawn as its parts
        if not isinstance(encoding.relation, Sequence | Grid):
            without.append(f"{encoding.label} on {encoding.relation!r}")
            continue
        relation = encoding.relation
        index = relation() if isinstance(relation, Grid) else relation(SEQUENCE_LENGTH)
        try:
            terms = encoding(index)
        except ValueError:  # it needs the layer's input, which only a batch gives
            without.append(encoding.label)
            continue
        parts = [
            Layer(name, term, relation, _evaluate(entry, term))
            for entry in terms.entries
            for term in entry.names
            if term in DESCRIPTIONS
        ]
        if not parts:
            without.append(encoding.label)
        found += parts
    if found and without:
        left_out = ", ".join(dict.fromkeys(without))
        print(f"left out: {left_out}: without a batch there are no terms to draw", file=sys.stderr, flush=True)
    if not found:
        what = ", ".join(dict.fromkeys(without)) or "no encoding"
        raise ValueError(
            f"there is nothing to draw: the model has {what}, which gives attention no terms without a batch"
        )
    return found


def _evaluate(entry: Entry, term: str) -> np.ndarray:
    rotation, index = entry.rotation, entry.index
    if term == "rotation" and rotation is not None:
        between = rotation.q_angles[0, :, :, None] - rotation.k_angles[0, :, None, :]
        return between.cos().mean(dim=-1).numpy()
    value = getattr(entry, term)
    if not isinstance(value, Tensor):
        value = value(ALL_ROWS)  # a function of the rows
    elif index is not None:
        rows = value if term == "b" else value.double().norm(dim=-1)
        value = rows[..., index.codes()[0, 0]]  # (H or 1, R) to (H or 1, N, M)
    matrix = value.double().reshape(-1, *value.shape[-2:]).cpu()
    return torch.where(torch.isfinite(matrix), matrix, torch.nan).numpy()
