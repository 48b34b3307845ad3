"""A Conformer from features to the outputs of a task."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from relbias.attention.masks import Window
from relbias.encodings import Encoding, EncodingSpec
from relbias.models.conformer import Conformer
from relbias.models.frame_streams import ConformerStream, FrameStream
from relbias.models.subsampling import ConvSubsampling
from relbias.relations import Sequence
from relbias.relations.base import check_size


class SpeechConformer(nn.Module):
    """Convolutions with a stride, a Conformer and a linear map: outputs for every few frames, such as labels of CTC.

    As in https://arxiv.org/abs/2005.08100. What a clip gives is the same alone and in a batch, whatever stands in its
    padding. With `chunk` it reads streams of features too; see :class:`~relbias.models.Conformer`.

    Args:
        encoding: as in :class:`~relbias.models.Conformer`.
        num_outputs: O, how many outputs there are for a frame: the classes, for CTC with one more for the blank.
        num_mels: F, the numbers in a frame of features.
        factor: how many frames of features become one, a power of 2; see :class:`~relbias.models.ConvSubsampling`.
        channels: of the convolutions with a stride; `dim` by default.
        dim: the size of a frame within the Conformer.
        depth: how many blocks.
        num_heads: H, a divisor of `dim`.
        mlp_ratio: the width of a block's networks, as a multiple of `dim`.
        kernel_size: of the blocks' convolutions, in frames of the Conformer; odd without `chunk`.
        dropout: as in :class:`~relbias.models.Conformer`.
        use_group_norm: as in :class:`~relbias.models.Conformer`.
        window: as in :class:`~relbias.models.Conformer`, in its own frames, as are the next three.
        chunk: as in :class:`~relbias.models.Conformer`. The convolutions with a stride then look back alone.
        left_context: as in :class:`~relbias.models.Conformer`.
        max_length: as in :class:`~relbias.models.Conformer`.
        relation: as in :class:`~relbias.models.Conformer`.
        device: where parameters lie.
        dtype: of the parameters.

    Raises:
        ValueError: sizes or options do not fit, or the encoding does not take a sequence.

    Example:
        >>> model = SpeechConformer("rope", num_outputs=11, num_mels=40, dim=32, depth=2, kernel_size=7)
        >>> outputs, lengths = model(torch.randn(2, 100, 40), torch.tensor([100, 61]))
        >>> outputs.shape, lengths
        (torch.Size([2, 25, 11]), tensor([25, 16]))
    """

    def __init__(
        self,
        encoding: EncodingSpec | Encoding,
        *,
        num_outputs: int,
        num_mels: int = 80,
        factor: int = 4,
        channels: int | None = None,
        dim: int = 144,
        depth: int = 4,
        num_heads: int = 4,
        mlp_ratio: float = 4.0,
        kernel_size: int = 31,
        dropout: float = 0.0,
        use_group_norm: bool = False,
        window: Window | None = None,
        chunk: int | None = None,
        left_context: int | None = None,
        max_length: int | None = None,
        relation: Sequence | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_size("num_outputs", num_outputs, 1)
        check_size("dim", dim, 1)
        like: Any = {"device": device, "dtype": dtype}
        self.subsampling = ConvSubsampling(
            num_mels, dim, channels=channels, factor=factor, causal=chunk is not None, **like
        )
        self.conformer = Conformer(
            encoding,
            input_dim=dim,
            num_heads=num_heads,
            ffn_dim=int(dim * mlp_ratio),
            num_layers=depth,
            depthwise_conv_kernel_size=kernel_size,
            dropout=dropout,
            use_group_norm=use_group_norm,
            window=window,
            chunk=chunk,
            left_context=left_context,
            max_length=max_length,
            relation=relation,
            **like,
        )
        self.head = nn.Linear(dim, num_outputs, **like)

    def reset_parameters(self) -> None:
        """Give every parameter its start."""
        for layer in (self.subsampling, self.conformer, self.head):
            layer.reset_parameters()

    def forward(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The outputs of a batch of clips.

        Args:
            features: (B, T, F), the frames; at the right of a clip there may be padding.
            lengths: (B,) integers, the frames of each clip, from 1 to T.

        Returns:
            (B, ceil(T / factor), O), and how many of these frames each clip has, (B,) int64; what stands behind a
            clip's last one means nothing.

        Raises:
            ValueError: shapes do not fit, a clip has no frames or more than there are, or the encoding has no vector
                for a position.
        """
        x, lengths = self.conformer(*self.subsampling(features, lengths))
        return self.head(x), lengths

    def new_stream(self) -> tuple[FrameStream, ConformerStream]:
        """The past of a stream that has not begun, for :meth:`stream`.

        Raises:
            ValueError: the model was made without `chunk`.
        """
        return FrameStream(), self.conformer.new_stream()

    def stream(self, features: Tensor, past: tuple[FrameStream, ConformerStream]) -> Tensor:
        """The outputs of the next frames of a stream, as :meth:`forward` gives them for all frames at once.

        Args:
            features: (B, N, F), N a multiple of `factor` times `chunk`, but for the last frames of the stream.
            past: of :meth:`new_stream`; the frames are added to it.

        Returns:
            (B, ceil(N / factor), O).

        Raises:
            ValueError: as in `Conformer.stream`. The past is as it was then.

        Example:
            >>> model = SpeechConformer("rope", num_outputs=11, num_mels=40, dim=32, depth=2, chunk=4, left_context=16)
            >>> past = model.eval().new_stream()
            >>> [model.stream(frames, past).shape[1] for frames in torch.randn(1, 42, 40).split(16, dim=1)]
            [4, 4, 3]
        """
        before, rest = past
        following = FrameStream(list(before.frames), before.ended)
        out = self.head(self.conformer.stream(self.subsampling.stream(features, following), rest))
        before.frames, before.ended = following.frames, following.ended
        return out
