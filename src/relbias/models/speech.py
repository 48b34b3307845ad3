"""A transformer over the frames of speech."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from relbias.attention.masks import Window
from relbias.encodings import Encoding, EncodingSpec
from relbias.models.block import TransformerBlock
from relbias.models.frame_lengths import check_frames
from relbias.models.input_encoding import split_encoding
from relbias.relations import Sequence
from relbias.relations.base import check_size


class SpeechTransformer(nn.Module):
    """A bidirectional transformer over time: outputs for every few frames, such as the labels of CTC.

    Frames side by side are stacked to one token, y = W [x_{s n}, ..., x_{s n + s - 1}] of `stack` = s frames; the last
    one of a clip is filled up with zeros. Blocks without convolutions follow, so that all that a token knows of time
    comes from the encoding. What a clip gives is the same alone and in a batch, whatever stands in its padding.

    An encoding that is applied at the input (sinusoidal, learned) is built once, any other one for each block; a built
    encoding is shared.

    Args:
        encoding: a name, a mapping, a callable or a built encoding; see `create_encoding`.
        num_outputs: O, how many outputs there are for a token: the classes, for CTC with one more for the blank.
        num_mels: F, the numbers in a frame.
        stack: how many frames are a token.
        max_length: the number of positions, in tokens, for an encoding that has a vector for each (learned).
        dim: the size of a token's vector.
        depth: how many blocks.
        num_heads: H, a divisor of `dim`.
        mlp_ratio: the width of a block's network, as a multiple of `dim`.
        dropout: the probability of dropping an attention weight, and a number of each branch's output.
        window: (left, right), in tokens: a token attends to so many before and after it in each block; None for all.
        relation: a Sequence, which is the default; an encoding with a table needs Sequence(max_distance).
        device: where parameters lie.
        dtype: of the parameters.

    Raises:
        ValueError: sizes do not fit, or the encoding does not take a sequence.

    Example:
        >>> model = SpeechTransformer("rope", num_outputs=11)
        >>> outputs, lengths = model(torch.randn(2, 100, 40), torch.tensor([100, 51]))
        >>> outputs.shape, lengths
        (torch.Size([2, 50, 11]), tensor([50, 26]))
    """

    def __init__(
        self,
        encoding: EncodingSpec | Encoding,
        *,
        num_outputs: int,
        num_mels: int = 40,
        stack: int = 2,
        max_length: int | None = None,
        dim: int = 64,
        depth: int = 3,
        num_heads: int = 4,
        mlp_ratio: float = 2.0,
        dropout: float = 0.0,
        window: Window | None = None,
        relation: Sequence | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        sizes = {"num_outputs": num_outputs, "num_mels": num_mels, "stack": stack, "depth": depth}
        for name, size in (*sizes.items(), ("dim", dim), ("num_heads", num_heads)):
            check_size(name, size, 1)
        if dim % num_heads:
            raise ValueError(f"dim must be a multiple of num_heads, got dim={dim} and num_heads={num_heads}")
        self.num_outputs, self.num_mels, self.stack, self.window = num_outputs, num_mels, stack, window
        like: Any = {"device": device, "dtype": dtype}
        self.embedding = nn.Linear(stack * num_mels, dim, **like)
        self.position, per_layer = split_encoding(encoding, num_heads, dim // num_heads, relation, max_length, **like)
        block: Any = {"mlp_ratio": mlp_ratio, "dropout": dropout, **like}
        self.blocks: Any = nn.ModuleList(
            TransformerBlock(dim, num_heads, per_layer, relation, **block) for _ in range(depth)
        )
        self.norm = nn.LayerNorm(dim, **like)
        self.head = nn.Linear(dim, num_outputs, **like)

    def reset_parameters(self) -> None:
        """Give every parameter its start."""
        for layer in (self.embedding, self.position, *self.blocks, self.norm, self.head):
            if layer is not None:
                layer.reset_parameters()

    def forward(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The outputs of a batch of clips.

        Args:
            features: (B, T, F), the frames; at the right of a clip there may be padding.
            lengths: (B,) integers, the frames of each clip, from 1 to T.

        Returns:
            The outputs (B, N, O) of N = ceil(T / stack) tokens, and how many of them each clip has, (B,) int64; what
            stands behind a clip's last token means nothing.

        Raises:
            ValueError: shapes do not fit, a clip has no frames or more than there are, or the encoding has no vector
                for a position.
        """
        if features.ndim != 3 or features.shape[-1] != self.num_mels:
            raise ValueError(f"features must have shape (B, T, {self.num_mels}), got {tuple(features.shape)}")
        lengths = check_frames(lengths, *features.shape[:2])
        frames = features.shape[1]
        tokens = -(-frames // self.stack)
        outside = torch.arange(frames, device=features.device) >= lengths[:, None]
        x = features.masked_fill(outside[..., None], 0.0)
        x = F.pad(x, (0, 0, 0, tokens * self.stack - frames))
        x = self.embedding(x.reshape(len(x), tokens, self.stack * self.num_mels))
        if self.position is not None:
            x = self.position.embed(x, self.position.relation(tokens))
        lengths = (lengths + (self.stack - 1)).div(self.stack, rounding_mode="floor")
        padding = torch.arange(tokens, device=x.device) >= lengths[:, None]
        for block in self.blocks:
            x = block(x, key_padding_mask=padding, window=self.window)
        return self.head(self.norm(x)), lengths
