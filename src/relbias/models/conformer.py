"""A Conformer with relative attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from relbias.attention import KVCache
from relbias.attention.masks import Window
from relbias.encodings import Encoding, EncodingSpec
from relbias.models.chunk_mask import check_chunks, chunk_mask
from relbias.models.conformer_block import ConformerBlock
from relbias.models.conformer_weights import from_torchaudio
from relbias.models.frame_lengths import check_frames
from relbias.models.frame_streams import ConformerStream
from relbias.models.input_encoding import split_encoding
from relbias.relations import Sequence
from relbias.relations.base import can_check_values, check_size


class Conformer(nn.Module):
    """A Conformer (https://arxiv.org/abs/2005.08100), an encoder of frames of sound with attention and convolutions.

    It takes the arguments of torchaudio's, which has no positions, and its weights: see :meth:`load_torchaudio`. What
    a clip gives is the same alone and in a batch, whatever stands in its padding; of batch norms in training the
    statistics are those of all valid frames.

    With `chunk` it can read a stream. A frame then attends to its own chunk and to `left_context` frames before it, and
    convolutions look back alone, both in :meth:`forward` and chunk by chunk in :meth:`stream`.

    Args:
        encoding: a name, a mapping, a callable or a built encoding; see `create_encoding`. One that is applied at the
            input (sinusoidal, learned) is built once, any other one for each block; a built encoding is shared.
        input_dim: the size of a frame.
        num_heads: H, a divisor of `input_dim`.
        ffn_dim: the width of the networks of a block.
        num_layers: how many blocks.
        depthwise_conv_kernel_size: in frames; odd without `chunk`.
        dropout: the probability of dropping an attention weight, and a number of a branch or within the networks.
        use_group_norm: GroupNorm of a clip rather than BatchNorm in the convolutions; not with `chunk`, since it looks
            at the whole clip.
        convolution_first: whether the convolution comes before the attention.
        window: (left, right), in frames: a frame attends to so many before and after it in each block, so that time and
            memory are linear in the length; None for all.
        chunk: how many frames a chunk has; None for no chunks.
        left_context: with `chunk`, to how many frames before its chunk a frame attends; None for all.
        max_length: the number of positions, in frames, for an encoding that has a vector for each (learned).
        relation: a Sequence, which is the default; an encoding with a table needs Sequence(max_distance).
        device: where parameters lie.
        dtype: of the parameters.

    Attributes:
        position: the encoding that is applied at the input, or None.
        blocks: the blocks.

    Raises:
        ValueError: sizes or options do not fit, or the encoding does not take a sequence.

    Example:
        >>> conformer = Conformer(input_dim=80, num_heads=4, ffn_dim=128, num_layers=2, depthwise_conv_kernel_size=31)
        >>> output, lengths = conformer(torch.randn(2, 100, 80), torch.tensor([100, 60]))
        >>> output.shape
        torch.Size([2, 100, 80])
    """

    def __init__(
        self,
        encoding: EncodingSpec | Encoding = "transformer_xl",
        *,
        input_dim: int,
        num_heads: int,
        ffn_dim: int,
        num_layers: int,
        depthwise_conv_kernel_size: int,
        dropout: float = 0.0,
        use_group_norm: bool = False,
        convolution_first: bool = False,
        window: Window | None = None,
        chunk: int | None = None,
        left_context: int | None = None,
        max_length: int | None = None,
        relation: Sequence | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        for name, size in (("input_dim", input_dim), ("num_heads", num_heads), ("num_layers", num_layers)):
            check_size(name, size, 1)
        if input_dim % num_heads:
            raise ValueError(f"input_dim must be a multiple of num_heads, got {input_dim} and {num_heads}")
        check_chunks(chunk, left_context, window)
        if chunk is not None and use_group_norm:
            raise ValueError("a GroupNorm looks at the whole clip, which a stream has not; use BatchNorm with chunk")
        self.input_dim, self.window, self.chunk, self.left_context = input_dim, window, chunk, left_context
        like: Any = {"device": device, "dtype": dtype}
        head_dim = input_dim // num_heads
        self.position, per_layer = split_encoding(encoding, num_heads, head_dim, relation, max_length, **like)
        self.blocks: Any = nn.ModuleList(
            ConformerBlock(
                input_dim,
                num_heads,
                per_layer,
                relation,
                ffn_dim=ffn_dim,
                kernel_size=depthwise_conv_kernel_size,
                dropout=dropout,
                use_group_norm=use_group_norm,
                convolution_first=convolution_first,
                causal=chunk is not None,
                **like,
            )
            for _ in range(num_layers)
        )

    def reset_parameters(self) -> None:
        """Give every parameter its start."""
        for layer in (self.position, *self.blocks):
            if layer is not None:
                layer.reset_parameters()

    def load_torchaudio(self, state: Mapping[str, Tensor]) -> None:
        """Take the weights of torchaudio's Conformer; the encodings stay as they are.

        With encoding="none" the outputs for valid frames are then torchaudio's. To go on from them with an encoding,
        attach one to torchaudio's own model by `relbias.plugins.torch`, or train this one.

        Args:
            state: the state dict of a `torchaudio.models.Conformer`.

        Raises:
            ValueError: it is of another model or of other sizes; nothing has been loaded then.

        Example:
            >>> from torchaudio.models import Conformer as Theirs
            >>> sizes = {"input_dim": 8, "num_heads": 2, "ffn_dim": 16, "num_layers": 1}
            >>> theirs = Theirs(**sizes, depthwise_conv_kernel_size=3)
            >>> ours = Conformer("none", **sizes, depthwise_conv_kernel_size=3)
            >>> ours.load_torchaudio(theirs.state_dict())
        """
        self.load_state_dict(from_torchaudio(state, self.state_dict()))

    def forward(self, input: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The frames after all blocks.

        Args:
            input: (B, T, input_dim), the frames; at the right of a clip there may be padding.
            lengths: (B,) integers, the frames of each clip, from 1 to T.

        Returns:
            (B, T, input_dim), zero at padding, and the lengths.

        Raises:
            ValueError: shapes do not fit, a clip has no frames or more than there are, or the encoding has no vector
                for a position.
        """
        self._check(input)
        frames = input.shape[1]
        lengths = check_frames(lengths, len(input), frames)
        padding: Tensor | None = torch.arange(frames, device=input.device) >= lengths[:, None]
        if can_check_values(lengths) and not bool((lengths < frames).any()):
            padding = None  # without a mask there is less to compute
        # Zeros and not a product: NaN in the padding would be NaN still.
        x = input if padding is None else input.masked_fill(padding[..., None], 0.0)
        if self.position is not None:
            x = self.position.embed(x, self.position.relation(frames))
        mask, window = None, self.window
        if self.chunk is not None:
            mask = chunk_mask(frames, self.chunk, self.left_context, input.device)
            if self.left_context is not None:  # all that the mask leaves is within, so that the rest costs no time
                window = (self.left_context + self.chunk - 1, self.chunk - 1)
        for block in self.blocks:
            x, _ = block(x, padding=padding, window=window, attn_mask=mask)
        return (x if padding is None else x.masked_fill(padding[..., None], 0.0)), lengths

    def new_stream(self) -> ConformerStream:
        """The past of a stream that has not begun, for :meth:`stream`.

        Raises:
            ValueError: the model was made without `chunk`.
        """
        if self.chunk is None:
            raise ValueError("a stream is read in chunks; build the Conformer with chunk= and left_context=")
        return ConformerStream(caches=[KVCache() for _ in self.blocks])

    def stream(self, input: Tensor, past: ConformerStream) -> Tensor:
        """The next frames of a stream, as :meth:`forward` gives them for all frames at once.

        In evaluation mode, for in training a batch norm's statistics and dropout are those of a call. Rotations that
        depend on the length (rope_dynamic, rope_longrope) are the same up to the length that they were made for.

        Args:
            input: (B, N, input_dim), N a multiple of `chunk`, but for the last frames of the stream.
            past: of :meth:`new_stream`; the frames are added to it.

        Returns:
            (B, N, input_dim).

        Raises:
            ValueError: shapes do not fit, the stream has ended with a call whose N was no multiple of `chunk`, or the
                encoding cannot use a cache (cope). The past is as it was then.

        Example:
            >>> conformer = Conformer(input_dim=16, num_heads=2, ffn_dim=32, num_layers=2, depthwise_conv_kernel_size=5,
            ...                       chunk=8, left_context=16).eval()
            >>> sound, past = torch.randn(1, 100, 16), conformer.new_stream()
            >>> pieces = [conformer.stream(piece, past) for piece in sound.split(8, dim=1)]
            >>> torch.allclose(torch.cat(pieces, dim=1), conformer(sound, torch.tensor([100]))[0], atol=1e-4)
            True
        """
        self._check(input)
        if self.chunk is None or len(past.caches) != len(self.blocks):
            raise ValueError("the past is of another model; begin with new_stream() of this one")
        past.check_open()
        if past.frames and len(past.frames[0]) != len(input):
            raise ValueError(f"the past is of {len(past.frames[0])} clips, got {len(input)}; begin with new_stream()")
        following = past.copy()
        pieces = [self._next_chunk(piece, following) for piece in input.split(self.chunk, dim=1)]
        following.ended = input.shape[1] % self.chunk > 0
        past.assign(following)
        return torch.cat(pieces, dim=1)

    def _next_chunk(self, x: Tensor, past: ConformerStream) -> Tensor:
        n, kept = x.shape[1], []
        if self.position is not None:
            x = self.position.embed(x, self.position.relation(n, past.seen + n))
        places = torch.arange(past.seen, past.seen + n, device=x.device)
        for number, block in enumerate(self.blocks):
            before = past.frames[number] if past.frames else x.new_zeros(len(x), self.input_dim, block.convolution.left)
            # Offsets need no positions, and are much cheaper without.
            positions = None if block.attention.encoding.offsets_only else places
            x, inputs = block(x, before=before, positions=positions, cache=past.caches[number])
            kept.append(inputs[..., n:].clone())  # a view would hold all of them
            if self.left_context is not None:
                past.caches[number].keep(self.left_context)
        past.frames, past.seen = kept, past.seen + n
        return x

    def _check(self, input: Tensor) -> None:
        if input.ndim != 3 or input.shape[-1] != self.input_dim or input.shape[1] == 0:
            raise ValueError(f"input must have shape (B, T, {self.input_dim}) with T >= 1, got {tuple(input.shape)}")
