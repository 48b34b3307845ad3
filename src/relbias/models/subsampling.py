"""Fewer frames of features, by convolutions with a stride."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from relbias.models.frame_lengths import check_frames
from relbias.models.frame_streams import FrameStream
from relbias.relations.base import check_size

_KERNEL, _STRIDE = 3, 2


class ConvSubsampling(nn.Module):
    """Convolutions over time and frequency with stride 2, then a linear map: what stands before a Conformer.

    Each convolution is 3 x 3 with a ReLU, and halves the frames, rounded up: of L frames ceil(L / factor) are
    left. Padding is zero before each convolution, as it is beyond either end, so that a clip in a batch gives what it
    gives alone.

    Args:
        input_dim: F, the numbers in a frame.
        output_dim: the size of a frame of the output.
        channels: of the convolutions; `output_dim` by default.
        factor: how many frames become one, a power of 2.
        causal: whether a convolution sees two frames before each that it keeps and none after it, rather than one on
            either side; for streams.
        device: where parameters lie.
        dtype: of the parameters.

    Raises:
        ValueError: a size is not positive, or `factor` is no power of 2.

    Example:
        >>> subsampling = ConvSubsampling(input_dim=80, output_dim=144, channels=32)
        >>> frames, lengths = subsampling(torch.randn(2, 100, 80), torch.tensor([100, 61]))
        >>> frames.shape, lengths
        (torch.Size([2, 25, 144]), tensor([25, 16]))
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        *,
        channels: int | None = None,
        factor: int = 4,
        causal: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        channels = output_dim if channels is None else channels
        sizes = {"input_dim": input_dim, "output_dim": output_dim, "channels": channels}
        for name, size in sizes.items():
            check_size(name, size, 1)
        check_size("factor", factor, 2)
        layers = factor.bit_length() - 1
        if 2**layers != factor:
            raise ValueError(f"factor must be a power of 2, got {factor}")
        self.input_dim, self.factor = input_dim, factor
        self.left = _KERNEL - 1 if causal else 1
        like: Any = {"device": device, "dtype": dtype}
        self.convolutions: Any = nn.ModuleList(
            nn.Conv2d(channels if layer else 1, channels, _KERNEL, _STRIDE, **like) for layer in range(layers)
        )
        self.project = nn.Linear(channels * -(-input_dim // factor), output_dim, **like)

    def reset_parameters(self) -> None:
        """Give every parameter its start, that of torch's layers."""
        for layer in (*self.convolutions, self.project):
            layer.reset_parameters()

    def forward(self, input: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Fewer frames.

        Args:
            input: (B, T, F), the frames; at the right of a clip there may be padding.
            lengths: (B,) integers, the frames of each clip, from 1 to T.

        Returns:
            (B, ceil(T / factor), output_dim), zero at padding, and the lengths, (B,) int64.

        Raises:
            ValueError: shapes do not fit, or a clip has no frames or more than there are.
        """
        self._check(input)
        lengths = check_frames(lengths, *input.shape[:2])
        x = _without_padding(input[:, None], lengths)
        for convolution in self.convolutions:
            x = F.relu(convolution(F.pad(x, (1, 1, self.left, _KERNEL - 1 - self.left))))
            lengths = (lengths + (_STRIDE - 1)) // _STRIDE
            x = _without_padding(x, lengths)
        return _without_padding(self._projected(x)[:, None], lengths)[:, 0], lengths

    def stream(self, input: Tensor, past: FrameStream) -> Tensor:
        """The next frames of a stream, as :meth:`forward` gives them for all frames at once.

        Args:
            input: (B, N, F), N a multiple of `factor`, but for the last frames of the stream.
            past: FrameStream() before the first frames; these are added to it.

        Returns:
            (B, ceil(N / factor), output_dim).

        Raises:
            ValueError: it is not causal, shapes do not fit, or the stream has ended with a call whose N was no multiple
                of `factor`. The past is as it was then.

        Example:
            >>> from relbias.models import FrameStream
            >>> subsampling, past = ConvSubsampling(input_dim=80, output_dim=16, causal=True), FrameStream()
            >>> [subsampling.stream(frames, past).shape[1] for frames in torch.randn(1, 100, 80).split(40, dim=1)]
            [10, 10, 5]
        """
        self._check(input)
        if self.left != _KERNEL - 1:
            raise ValueError("a stream has no frames that are still to come; build ConvSubsampling with causal=True")
        past.check_open()
        if past.frames and len(past.frames[0]) != len(input):
            raise ValueError(f"the past is of {len(past.frames[0])} clips, got {len(input)}; begin with FrameStream()")
        x, kept = input[:, None], []
        for number, convolution in enumerate(self.convolutions):
            before = past.frames[number] if past.frames else x.new_zeros(*x.shape[:2], self.left, x.shape[3])
            x = torch.cat((before, x), dim=2)
            kept.append(x[:, :, -self.left :].clone())  # a view would hold all of them
            x = F.relu(convolution(F.pad(x, (1, 1))))
        past.frames, past.ended = kept, input.shape[1] % self.factor > 0
        return self._projected(x)

    def _projected(self, x: Tensor) -> Tensor:
        """(B, C, T, F') as (B, T, output_dim)."""
        return self.project(x.transpose(1, 2).flatten(2))

    def _check(self, input: Tensor) -> None:
        if input.ndim != 3 or input.shape[-1] != self.input_dim or input.shape[1] == 0:
            raise ValueError(f"input must have shape (B, T, {self.input_dim}) with T >= 1, got {tuple(input.shape)}")


def _without_padding(x: Tensor, lengths: Tensor) -> Tensor:
    """(B, C, T, F) with zeros behind the lengths."""
    padding = torch.arange(x.shape[2], device=x.device) >= lengths[:, None]
    return x.masked_fill(padding[:, None, :, None], 0.0)
