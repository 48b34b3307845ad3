"""What models of frames keep of a stream."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from relbias.attention import KVCache


@dataclass
class FrameStream:
    """The last frames before each convolution; updated by `ConvSubsampling.stream`.

    Args:
        frames: of each convolution its last inputs; empty before the first frames.
        ended: whether the last call had fewer frames than a whole step, after which nothing can follow.
    """

    frames: list[Tensor] = field(default_factory=list)
    ended: bool = False

    def check_open(self) -> None:
        """Raise ValueError if nothing can follow."""
        if self.ended:
            raise ValueError("the stream has ended with frames that were no whole chunk; begin a new one")


@dataclass
class ConformerStream(FrameStream):
    """The past of a Conformer's stream, of bounded size where the left context is; updated by `Conformer.stream`.

    Args:
        frames: of each block the last inputs of its convolution, (B, dim, kernel_size - 1).
        ended: whether the last chunk was shorter than a chunk.
        caches: of each block the keys and values of the frames before the next chunk, as far as the left context.
        seen: how many frames there were.
    """

    caches: list[KVCache] = field(default_factory=list)
    seen: int = 0

    def copy(self) -> ConformerStream:
        """The same past, which can go on by itself."""
        return ConformerStream(
            list(self.frames), self.ended, [KVCache(**vars(cache)) for cache in self.caches], self.seen
        )

    def assign(self, other: ConformerStream) -> None:
        """Go on from the past of another."""
        vars(self).update(vars(other))
