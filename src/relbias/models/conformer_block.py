"""The block of a Conformer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from relbias.attention import RelativeAttention
from relbias.encodings import Encoding, EncodingSpec
from relbias.models.frame_norms import FrameBatchNorm, FrameGroupNorm
from relbias.relations import Sequence
from relbias.relations.base import check_size


class ConvolutionModule(nn.Module):
    """A Conformer's convolution: a gated linear unit, a depthwise convolution, a norm, SiLU and a linear map.

    What goes into the convolution is zero at padding, as it is beyond either end, so that a clip in a batch gives what
    it gives alone.

    Args:
        dim: the size of a frame.
        kernel_size: of the depthwise convolution, in frames.
        dropout: the probability of dropping a number of the output.
        use_group_norm: a GroupNorm of the clip rather than a BatchNorm.
        causal: whether a frame sees `kernel_size` - 1 frames before it and none after it, rather than half of them on
            either side.
        device: where parameters lie.
        dtype: of the parameters.

    Raises:
        ValueError: `kernel_size` is not positive, or is even without `causal`.

    Example:
        >>> ConvolutionModule(16, kernel_size=5)(torch.randn(2, 10, 16))[0].shape
        torch.Size([2, 10, 16])
    """

    def __init__(
        self,
        dim: int,
        kernel_size: int,
        *,
        dropout: float = 0.0,
        use_group_norm: bool = False,
        causal: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_size("depthwise_conv_kernel_size", kernel_size, 1)
        if kernel_size % 2 == 0 and not causal:
            raise ValueError(
                f"depthwise_conv_kernel_size must be odd, for as many frames on either side, got {kernel_size}"
            )
        self.left = kernel_size - 1 if causal else kernel_size // 2
        self.right = kernel_size - 1 - self.left
        like: Any = {"device": device, "dtype": dtype}
        self.norm_input = nn.LayerNorm(dim, **like)
        self.expand = nn.Linear(dim, 2 * dim, **like)
        self.depthwise = nn.Conv1d(dim, dim, kernel_size, groups=dim, **like)
        self.norm: Any = FrameGroupNorm(dim, **like) if use_group_norm else FrameBatchNorm(dim, **like)
        self.project = nn.Linear(dim, dim, **like)
        self.dropout = nn.Dropout(dropout)

    def reset_parameters(self) -> None:
        """Give every parameter its start, that of torch's layers."""
        for layer in (self.norm_input, self.expand, self.depthwise, self.norm, self.project):
            layer.reset_parameters()

    def forward(self, x: Tensor, padding: Tensor | None = None, before: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The frames after the module, and what the next frames of a stream need.

        Args:
            x: (B, T, dim).
            padding: (B, T) bool, True = padding.
            before: (B, dim, kernel_size - 1), what the last call returned, of a causal module; None for the first.

        Returns:
            (B, T, dim), and (B, dim, T + kernel_size - 1), of which the last kernel_size - 1 frames are the next
            `before`.
        """
        x = F.glu(self.expand(self.norm_input(x)), dim=-1)
        if padding is not None:
            x = x.masked_fill(padding[..., None], 0.0)
        x = F.pad(x.mT, (self.left, self.right)) if before is None else torch.cat((before, x.mT), dim=-1)
        out = F.silu(self.norm(self.depthwise(x), padding))
        return self.dropout(self.project(out.mT)), x


class ConformerBlock(nn.Module):
    """Half a network, attention, a convolution and half a network, each added to its input, and a LayerNorm.

    As in https://arxiv.org/abs/2005.08100: x + f(x) / 2, x + attention(norm(x)), x + convolution(x), x + f'(x) / 2.

    Args:
        dim: the size of a frame.
        num_heads: H, a divisor of `dim`.
        encoding: as in `RelativeAttention`.
        relation: as in `RelativeAttention`.
        ffn_dim: the width of the two networks.
        kernel_size: of the convolution, in frames; odd without `causal`.
        dropout: the probability of dropping an attention weight, and a number of a branch or within the networks.
        use_group_norm: as in :class:`ConvolutionModule`.
        convolution_first: whether the convolution comes before the attention.
        causal: of the convolution, as in :class:`ConvolutionModule`.
        device: where parameters lie.
        dtype: of the parameters.

    Raises:
        ValueError: as in `RelativeAttention` and :class:`ConvolutionModule`.

    Example:
        >>> block = ConformerBlock(16, num_heads=2, encoding="transformer_xl", ffn_dim=32, kernel_size=5)
        >>> block(torch.randn(2, 10, 16))[0].shape
        torch.Size([2, 10, 16])
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        encoding: EncodingSpec | Encoding = "none",
        relation: Sequence | None = None,
        *,
        ffn_dim: int,
        kernel_size: int,
        dropout: float = 0.0,
        use_group_norm: bool = False,
        convolution_first: bool = False,
        causal: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_size("ffn_dim", ffn_dim, 1)
        self.convolution_first = convolution_first
        like: Any = {"device": device, "dtype": dtype}
        self.attention = RelativeAttention(dim, num_heads, encoding, relation, dropout=dropout, **like)
        self.norm_attention = nn.LayerNorm(dim, **like)
        self.convolution = ConvolutionModule(
            dim, kernel_size, dropout=dropout, use_group_norm=use_group_norm, causal=causal, **like
        )
        networks: Any = (
            nn.Sequential(
                nn.LayerNorm(dim, **like),
                nn.Linear(dim, ffn_dim, **like),
                nn.SiLU(),
                nn.Dropout(dropout),
                nn.Linear(ffn_dim, dim, **like),
                nn.Dropout(dropout),
            )
            for _ in range(2)
        )
        self.mlp1, self.mlp2 = networks
        self.norm = nn.LayerNorm(dim, **like)
        self.dropout = nn.Dropout(dropout)

    def reset_parameters(self) -> None:
        """Give every parameter its start: Xavier for the attention's matrices, that of torch's layers for others."""
        for layer in (self.attention, self.norm_attention, self.convolution, *self.mlp1, *self.mlp2, self.norm):
            if any(True for _ in layer.parameters()):
                layer.reset_parameters()

    def forward(
        self, x: Tensor, *, padding: Tensor | None = None, before: Tensor | None = None, **arguments: Any
    ) -> tuple[Tensor, Tensor]:
        """The frames after one block, and what the convolution needs of them in a stream.

        Args:
            x: (B, T, dim).
            padding: (B, T) bool, True = padding.
            before: as in :class:`ConvolutionModule`.
            **arguments: those of `RelativeAttention.forward` but `key_padding_mask`.

        Returns:
            (B, T, dim), and what :class:`ConvolutionModule` returns beside.
        """
        x = x + 0.5 * self.mlp1(x)
        if not self.convolution_first:
            x = x + self._attended(x, padding, arguments)
        change, inputs = self.convolution(x, padding, before)
        x = x + change
        if self.convolution_first:
            x = x + self._attended(x, padding, arguments)
        x = x + 0.5 * self.mlp2(x)
        return self.norm(x), inputs

    def _attended(self, x: Tensor, padding: Tensor | None, arguments: dict[str, Any]) -> Tensor:
        return self.dropout(self.attention(self.norm_attention(x), key_padding_mask=padding, **arguments))
