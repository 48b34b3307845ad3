"""Three-dimensional offsets between the patches of a video or a scan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relbias.relations.lattice import Lattice, LatticeIndex


@dataclass(frozen=True)
class Volume(Lattice):
    """The offset (dz, dy, dx) from a key's patch to a query's patch, (z_i - z_j, y_i - y_j, x_i - x_j).

    The tokens are P prefix tokens, then the patches slice by slice and row by row: patch (z, y, x) is token
    P + (z H + y) W + x. In a video z is the time. The code of two patches is
    ((dz + a) (2 b + 1) + dy + b) (2 c + 1) + dx + c, where a, b and c are the largest distances D - 1, H - 1 and W - 1,
    or all three `max_distance`, to which the offsets are then clipped. The codes of pairs with a prefix token follow
    as in :class:`Grid`.

    Args:
        depth: D, in patches; of a video the number of frames.
        height: H, in patches.
        width: W, in patches.
        prefix_tokens: P.
        max_distance: the largest distance along an axis with a code of its own, in patches; None for the volume's.

    Raises:
        ValueError: a size is too small or not an integer.

    Example:
        >>> volume = Volume(2, 1, 2)
        >>> volume.num_codes  # 3 offsets in time, 1 in height, 3 in width
        9
        >>> volume().codes()[0, 0]
        tensor([[4, 3, 1, 0],
                [5, 4, 2, 1],
                [7, 6, 4, 3],
                [8, 7, 5, 4]])
    """

    depth: int
    height: int
    width: int
    prefix_tokens: int = 0
    max_distance: int | None = None

    axes: ClassVar[tuple[str, ...]] = ("depth", "height", "width")

    @property
    def index_type(self) -> type[VolumeIndex]:
        return VolumeIndex

    def __call__(self, depth: int | None = None, height: int | None = None, width: int | None = None) -> VolumeIndex:
        """The index of one call.

        Args:
            depth: the call's depth, in patches; the relation's by default.
            height: the call's height, in patches; the relation's by default.
            width: the call's width, in patches; the relation's by default.

        Raises:
            ValueError: the call's volume is larger than the relation's, whose codes would not suffice (with
                `max_distance` any size will do), or only some of the three were given.
        """
        if depth is None and height is None and width is None:
            depth, height, width = self.depth, self.height, self.width
        if depth is None or height is None or width is None:
            raise ValueError(
                f"a volume takes a depth, a height and a width, got depth={depth}, height={height} and width={width}"
            )
        sizes = (depth, height, width)
        return VolumeIndex(sizes, self.prefix_tokens, self.limits(sizes))


@dataclass(frozen=True)
class VolumeIndex(LatticeIndex):
    """The offsets of one call. Made by calling a :class:`Volume`; sizes (D, H, W), coordinates (z, y, x)."""
