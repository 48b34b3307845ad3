"""The base class of every encoding, which is also its registration."""

from __future__ import annotations

import fnmatch
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from relbias._nearest import nearest
from relbias.encodings.resize import Unit, check_unit, differ_in_size_alone
from relbias.relations import Grid, Index, Relation, Sequence
from relbias.relations.base import check_size
from relbias.relations.lattice import Lattice
from relbias.terms import Terms, scale_entry

_classes: dict[str, type[Encoding]] = {}


class Encoding(nn.Module, ABC):
    """A trainable rule from the relation between two tokens to terms of attention.

    A subclass with a `name` registers itself: the name works wherever an encoding is asked for. It sets `relations`
    to the classes of relations that it accepts, and defines `forward`.

    Args:
        num_heads: H.
        head_dim: D.
        relation: the relation whose indices the encoding will get.
        strength: the start of a learned factor per head, of b, K, Q, V, u and of the angles of a rotation (of whose
            own factor it is the power); None for no factor. Added at 0 by `zero_`.
        device: where parameters lie.
        dtype: of the parameters.

    Raises:
        ValueError: a size is not positive, or the relation is of a class that the encoding does not accept.

    Example:
        >>> class Nearby(Encoding):
        ...     name = "nearby"
        ...     relations = (Sequence,)
        ...     def forward(self, index, *, x=None, attention=None):
        ...         return Terms(b=lambda rows: -index.differences(rows, self.device).abs().float())
        >>> find_encoding("nearby")(num_heads=2, head_dim=4)(Sequence()(3)).names
        ('b',)
    """

    name: ClassVar[str]
    """The name in the registry, in lower case."""
    formula: ClassVar[str] = ""
    """What it gives, in one line of plain text, with the letters of the equation."""
    paper: ClassVar[str] = ""
    """Authors and year, and the address of the paper, as in "Press et al. 2022, https://arxiv.org/abs/2108.12409"."""
    extrapolation: ClassVar[Literal["formula", "clipped", "none"]] = "formula"
    """What holds at distances not seen in training: the formula goes on, far ones share a code, or nothing does."""
    relations: ClassVar[tuple[type[Relation], ...]] = (Relation,)
    """The classes of relations that the encoding accepts."""
    paper_scale: float | Tensor | None = None
    """The factor c of the paper; None for D^-0.5. A learned one is a property that gives (H,), new at each call."""
    paper_normalize: bool = False
    """Whether the paper's attention L2-normalises q and k first."""
    fixed_size: ClassVar[bool] = False
    """Whether the number of parameters depends on the relation's size, so that a larger grid needs `resize`."""
    offsets_only: ClassVar[bool] = False
    """Whether on a sequence only offsets matter, so that positions which are all shifted alike need not be given."""
    makes_keys: ClassVar[bool] = False
    """Whether it makes the keys itself, from the layer's input, so that attention to a context refuses it."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in cls.__dict__:
            return
        other = _classes.get(cls.name)
        # A class that is defined again, as in a notebook, takes its own place.
        if other is not None and (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(
                f"the name {cls.name!r} is taken by {other.__module__}.{other.__qualname__}; choose another"
            )
        _classes[cls.name] = cls

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        relation: Relation | None = None,
        *,
        strength: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        relation = Sequence() if relation is None else relation
        check_size("num_heads", num_heads, 1)
        check_size("head_dim", head_dim, 1)
        if not isinstance(relation, self.relations):
            accepted = " or ".join(r.__name__ for r in self.relations)
            raise ValueError(f"{self.label} takes the relation {accepted}, got {relation!r}")
        self.num_heads, self.head_dim = num_heads, head_dim
        self.relation: Any = relation  # of one of the classes in `relations`
        self._strength_start = strength
        self.strength: nn.Parameter | None
        # Tells device and dtype where there are no parameters; follows .to(), .double() and to_empty().
        self.register_buffer("_like", torch.empty(0, device=device, dtype=dtype), persistent=False)
        self.register_parameter("strength", None)
        if strength is not None:
            self.strength = nn.Parameter(torch.full((num_heads,), float(strength), device=device, dtype=dtype))

    _like: Tensor

    @property
    def label(self) -> str:
        """How messages call the encoding."""
        return repr(getattr(self, "name", type(self).__name__))

    @property
    def device(self) -> torch.device:
        """Where the encoding lies."""
        return self._like.device

    def _parameter(self, *shape: int) -> nn.Parameter:
        """A parameter like the encoding's others, not yet filled."""
        return nn.Parameter(torch.empty(shape, device=self._like.device, dtype=self._like.dtype))

    def reset_parameters(self) -> None:
        """Give every parameter its start; tables are drawn with a standard deviation of 0.02."""
        for name, parameter in self.named_parameters(recurse=False):
            if name == "strength":
                nn.init.constant_(parameter, self._strength_start or 0.0)
            else:
                nn.init.normal_(parameter, std=0.02)

    @abstractmethod
    def forward(self, index: Index, *, x: Tensor | None = None, attention: nn.Module | None = None) -> Terms:
        """The terms of one call.

        Args:
            index: of N queries and M keys.
            x: (B, N, H D), the layer's input, for encodings that depend on it.
            attention: the layer, for encodings that use its projections.
        """

    def check_index(self, index: Any) -> None:
        """Raise ValueError unless the index is of the kind that the relation gives."""
        spaces = [self.relation.code_space]
        right_type = isinstance(index, self.relation.index_type)
        if right_type and isinstance(self.relation, Lattice) and not self.fixed_size:
            spaces.append(self.relation.resized(*index.sizes).code_space)
        if not right_type or index.code_space not in spaces:
            raise ValueError(f"{self.label} takes an index made by {self.relation!r}, got {_describe(index)}")

    def __call__(self, index: Any, **kwargs: Any) -> Terms:
        self.check_index(index)
        terms = super().__call__(index, **kwargs)
        if self.strength is None:
            return terms
        return Terms.of(*(scale_entry(entry, self.strength) for entry in terms.entries))

    def grid_index(self, height: int, width: int, patches: Tensor | None = None) -> Any:
        """The index of one call on a patch grid, for an encoding over a Grid.

        Args:
            height: in patches.
            width: in patches.
            patches: (B, n) int64, those that are there, as in `GridIndex.of`; None for all.

        Returns:
            An index with the relation's own codes where the grid fits the relation. A larger grid has them too if the
            encoding has no parameters that depend on the size.

        Raises:
            ValueError: the grid is larger than a table, or the relation is no Grid.
        """
        if not isinstance(self.relation, Grid):
            raise ValueError(f"{self.label} is over {self.relation!r}, which has no height and width")
        fits = height <= self.relation.height and width <= self.relation.width
        whole = self.relation(height, width) if self.fixed_size or fits else self.relation.resized(height, width)()
        return whole if patches is None else whole.of(patches)

    def resize(self, relation: Relation, unit: Unit = "patch") -> None:
        """Take another size of the relation, in place; an encoding without tables of that size only notes it.

        Tables that change are new parameters: build the optimizer afterwards.

        Args:
            relation: the encoding's own with other sizes; for a table over a Sequence with another max_distance.
            unit: what an offset keeps, see `resize_table`: "patch", for more or fewer patches of the same scale, or
                "image", for the same images cut finer.

        Raises:
            ValueError: the relation differs otherwise, or the encoding has parameters that cannot be resized.
        """
        if not differ_in_size_alone(self.relation, relation):
            raise ValueError(f"{self.label} over {self.relation!r} takes another size of it, got {relation!r}")
        check_unit(unit)
        if self.fixed_size:
            raise ValueError(f"only tables can be resized, and {self.label} is a {type(self).__name__}")
        self.relation = relation

    def zero_(self) -> None:
        """Make the encoding add nothing, until training moves it. Called when attached to a trained model.

        By default a strength per head that starts at 0; encodings whose tables can be zero override it.
        """
        with torch.no_grad():
            if self.strength is None:
                self.strength = self._parameter(self.num_heads)
            self.strength.zero_()
        self._strength_start = 0.0

    def drop_paper_scale(self) -> None:
        """Do without a learned `paper_scale`, whose parameter gets no gradient where attention has another scale.

        Called by `zero_`, and by a layer without scale="paper".
        """

    def __prepare_scriptable__(self) -> None:
        raise ValueError("torch.jit.script cannot compile encodings; use torch.compile or torch.export")

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}, head_dim={self.head_dim}, relation={self.relation}"


def _describe(index: Any) -> str:
    return (
        f"a {type(index).__name__} with the codes {index.code_space}"
        if isinstance(index, Index)
        else f"a {type(index).__name__}"
    )


def find_encoding(name: str) -> type[Encoding]:
    """The class registered under a name.

    Raises:
        ValueError: there is none; the message names the nearest.
    """
    if name not in _classes:
        raise ValueError(f"there is no encoding {name!r}; {nearest(name, _classes)}")
    return _classes[name]


def list_encodings(pattern: str = "*") -> list[str]:
    """The names of the encodings, sorted.

    Args:
        pattern: which ones, with the wildcards *, ? and [...].

    Example:
        >>> import relbias as rb
        >>> rb.list_encodings("rope_[ay]*")
        ['rope_axial', 'rope_yarn']
    """
    return sorted(fnmatch.filter(_classes, pattern))
