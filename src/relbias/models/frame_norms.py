"""Norms of a batch of clips that look at the frames of the clips and not at the padding."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class FrameBatchNorm(nn.BatchNorm1d):
    """BatchNorm (https://arxiv.org/abs/1502.03167) whose mean and variance are those of the valid frames.

    The parameters, buffers and arguments are those of `nn.BatchNorm1d`, and so is the result where nothing is padding.
    SyncBatchNorm knows no padding: train on several devices with :class:`FrameGroupNorm`.

    Example:
        >>> norm, x = FrameBatchNorm(4), torch.randn(2, 4, 10)
        >>> padding = torch.arange(10) >= torch.tensor([[10], [7]])
        >>> norm(x, padding).shape
        torch.Size([2, 4, 10])
    """

    def forward(self, input: Tensor, padding: Tensor | None = None) -> Tensor:
        """The normalised frames.

        Args:
            input: (B, C, T).
            padding: (B, T) bool, True = padding, whose outputs mean nothing; None for none.

        Returns:
            (B, C, T).
        """
        if padding is None or not self.training:
            return super().forward(input)
        valid = ~padding[:, None]
        numbers = input.to(torch.promote_types(input.dtype, torch.float32))
        count = valid.sum().clamp(min=1)
        mean = numbers.masked_fill(~valid, 0.0).sum(dim=(0, 2)) / count
        deviations = (numbers - mean[:, None]).masked_fill(~valid, 0.0)
        variance = deviations.square().sum(dim=(0, 2)) / count
        self._remember(mean.detach(), variance.detach() * count / (count - 1).clamp(min=1))
        out = deviations * (variance + self.eps).rsqrt()[:, None]
        return (out * self.weight[:, None] + self.bias[:, None]).to(input.dtype)

    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        """Move the running statistics towards those of a batch, (C,) each."""
        if self.num_batches_tracked is None or self.running_mean is None or self.running_var is None:
            return
        self.num_batches_tracked.add_(1)
        share = 1.0 / self.num_batches_tracked if self.momentum is None else self.momentum
        self.running_mean.add_(share * (mean.to(self.running_mean.dtype) - self.running_mean))
        self.running_var.add_(share * (variance.to(self.running_var.dtype) - self.running_var))


class FrameGroupNorm(nn.GroupNorm):
    """GroupNorm (https://arxiv.org/abs/1803.08494) of one group: the mean and variance of a clip's valid frames.

    The parameters are those of `nn.GroupNorm(1, num_channels)`, and so is the result where nothing is padding.

    Args:
        num_channels: C.
        device: where parameters lie.
        dtype: of the parameters.

    Example:
        >>> norm, x = FrameGroupNorm(4), torch.randn(2, 4, 10)
        >>> padding = torch.arange(10) >= torch.tensor([[10], [7]])
        >>> torch.allclose(norm(x, padding)[1:, :, :7], norm(x[1:, :, :7]), atol=1e-5)
        True
    """

    def __init__(
        self, num_channels: int, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__(1, num_channels, device=device, dtype=dtype)

    def forward(self, input: Tensor, padding: Tensor | None = None) -> Tensor:
        """The normalised frames; arguments and result as in :class:`FrameBatchNorm`."""
        if padding is None:
            return F.group_norm(input, 1, self.weight, self.bias, self.eps)
        valid = ~padding[:, None]
        numbers = input.to(torch.promote_types(input.dtype, torch.float32))
        count = (valid.sum(dim=2, keepdim=True) * input.shape[1]).clamp(min=1)
        mean = numbers.masked_fill(~valid, 0.0).sum(dim=(1, 2), keepdim=True) / count
        deviations = (numbers - mean).masked_fill(~valid, 0.0)
        variance = deviations.square().sum(dim=(1, 2), keepdim=True) / count
        out = deviations * (variance + self.eps).rsqrt()
        return (out * self.weight[:, None] + self.bias[:, None]).to(input.dtype)
