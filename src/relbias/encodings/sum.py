"""Several relations at once."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from relbias.encodings.base import Encoding
from relbias.encodings.resize import Unit
from relbias.relations import Index, Relation
from relbias.terms import Terms


class EncodingSum(Encoding):
    """Several encodings, each over a relation of its own, whose terms are summed.

    Args:
        encodings: the encodings by name; the names are those of their parameters and of the indices in a call.

    Raises:
        ValueError: there are none, they have different heads, or one is applied at the input.

    Example:
        >>> from relbias.encodings import T5, Table
        >>> from relbias.relations import Hops, Sequence
        >>> encoding = EncodingSum({"offset": T5(4, 16), "tree": Table(4, 16, Hops(20))})
        >>> sorted(name for name, _ in encoding.named_parameters())
        ['encodings.offset.table', 'encodings.tree.table']
    """

    def __init__(self, encodings: Mapping[str, Encoding]) -> None:
        if not encodings:
            raise ValueError("a sum of encodings needs at least one")
        sizes = {(encoding.num_heads, encoding.head_dim) for encoding in encodings.values()}
        if len(sizes) > 1:
            raise ValueError(f"the encodings of a sum must have the same (heads, head size), got {sorted(sizes)}")
        for key, encoding in encodings.items():
            if hasattr(encoding, "embed"):
                raise ValueError(f"{encoding.label} ({key!r}) is applied at the input and cannot be part of a sum")
            if not isinstance(key, str) or not key.isidentifier() or hasattr(nn.ModuleDict(), key):
                raise ValueError(
                    f"the keys of a sum name its parameters: identifiers that torch's modules do not use; got {key!r}"
                )
        super().__init__(*next(iter(sizes)))
        self.encodings: Any = nn.ModuleDict(encodings)
        self.relation = {key: encoding.relation for key, encoding in encodings.items()}

    @property
    def paper_scale(self) -> float | Tensor | None:
        """The one that all encodings agree on; a learned one is that of a single encoding, for no two agree.

        Raises:
            ValueError: they do not agree.
        """
        first, *others = (encoding.paper_scale for encoding in self.encodings.values())
        learned = any(isinstance(scale, Tensor) for scale in (first, *others))
        if others and (learned or any(other != first for other in others)):
            raise ValueError('the papers of the encodings differ in scale; give a number instead of scale="paper"')
        return first

    @property
    def paper_normalize(self) -> bool:
        return any(encoding.paper_normalize for encoding in self.encodings.values())

    @property
    def fixed_size(self) -> bool:
        return any(encoding.fixed_size for encoding in self.encodings.values())

    @property
    def offsets_only(self) -> bool:
        return all(encoding.offsets_only for encoding in self.encodings.values())

    @property
    def makes_keys(self) -> bool:
        return any(encoding.makes_keys for encoding in self.encodings.values())

    def grid_index(self, height: int, width: int, patches: Tensor | None = None) -> Mapping[str, Index]:
        """The indices of one call on a patch grid, by key."""
        return {key: encoding.grid_index(height, width, patches) for key, encoding in self.encodings.items()}

    def forward(
        self, index: Mapping[str, Index], *, x: Tensor | None = None, attention: nn.Module | None = None
    ) -> Terms:
        """The sum of the terms; `index` holds an index for each key."""
        terms = Terms()
        for key, encoding in self.encodings.items():
            terms = terms + encoding(index[key], x=x, attention=attention)
        return terms

    def check_index(self, index: Any) -> None:
        """Raise ValueError unless there is an index for each key."""
        if not isinstance(index, Mapping) or index.keys() != self.encodings.keys():
            given = sorted(index) if isinstance(index, Mapping) else type(index).__name__
            raise ValueError(f"a sum needs an index for each of {sorted(self.encodings)}, got {given}")

    def resize(self, relation: Mapping[str, Any] | Relation, unit: Unit = "patch") -> None:
        """Take other sizes of the relations, in place; all of them or, where one cannot, none.

        Args:
            relation: by the keys of the sum; what is absent stays as it is.
            unit: as in the encodings' own `resize`.
        """
        if not isinstance(relation, Mapping) or not relation.keys() <= self.encodings.keys():
            given = sorted(relation) if isinstance(relation, Mapping) else repr(relation)
            raise ValueError(f"a sum is resized by a mapping from keys of {sorted(self.encodings)}, got {given}")
        for key, new in relation.items():
            copy.deepcopy(self.encodings[key]).resize(new, unit)
        for key, new in relation.items():
            self.encodings[key].resize(new, unit)
        self.relation = {key: encoding.relation for key, encoding in self.encodings.items()}

    def drop_paper_scale(self) -> None:
        """Let each encoding do without a learned scale."""
        for encoding in self.encodings.values():
            encoding.drop_paper_scale()

    def zero_(self) -> None:
        """Make each encoding add nothing."""
        for encoding in self.encodings.values():
            encoding.zero_()

    def reset_parameters(self) -> None:
        """Give the parameters of each encoding their start."""
        for encoding in self.encodings.values():
            encoding.reset_parameters()
