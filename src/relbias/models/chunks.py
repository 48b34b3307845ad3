"""Documents that are longer than an encoder can read at once."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from relbias.models.encoder import SequenceEncoder
from relbias.relations.base import can_check_values, check_size


def encode_in_chunks(
    encoder: SequenceEncoder,
    tokens: Tensor,
    chunk: int,
    overlap: int = 0,
    *,
    key_padding_mask: Tensor | None = None,
    pool: Literal["mean", "max"] = "mean",
) -> Tensor:
    """One vector of each document, from chunks that overlap.

    Chunk c holds the tokens from c (chunk - overlap) on, with positions of its own, and the last one is moved back to
    end with the document. The encoder reads them one by one, so that its memory is that of one chunk. A chunk's vector
    is the mean of its tokens' vectors; a document's is the mean, or the maximum, of its chunks'.

    Args:
        encoder: the encoder.
        tokens: (B, N) integers, N at least 1.
        chunk: how many tokens a chunk has.
        overlap: how many of them it shares with the next, less than `chunk`.
        key_padding_mask: (B, N) bool, True = padding, at the right; it changes nothing.
        pool: how chunks become a document, "mean" or "max".

    Returns:
        (B, dim); zeros for a document that is padding alone.

    Raises:
        ValueError: sizes do not fit, there are no tokens, or `pool` is unknown.

    Example:
        >>> encoder = SequenceEncoder("learned", num_tokens=65, max_length=64)
        >>> encode_in_chunks(encoder, torch.randint(65, (2, 200)), chunk=64, overlap=16).shape
        torch.Size([2, 96])
    """
    check_size("chunk", chunk, 1)
    check_size("overlap", overlap, 0)
    if overlap >= chunk:
        raise ValueError(f"overlap must be less than the chunk of {chunk} tokens, got {overlap}")
    if pool not in ("mean", "max"):
        raise ValueError(f'pool is "mean" or "max", got {pool!r}')
    if tokens.ndim != 2 or tokens.shape[1] == 0:
        raise ValueError(f"tokens must have shape (B, N) with N at least 1, got {tuple(tokens.shape)}")
    lengths = _lengths(tokens, key_padding_mask)
    slots = torch.arange(min(chunk, tokens.shape[1]), device=tokens.device)
    vectors, present = [], []
    for first in range(0, max(tokens.shape[1] - overlap, 1), chunk - overlap):
        # The last chunk of an item is moved back to end with it, so that its vector is the one that it has alone.
        places = torch.minimum((lengths - chunk).clamp(min=0), lengths.new_tensor(first)) + slots
        padding = places >= lengths
        x = encoder(tokens.gather(1, places.clamp(max=tokens.shape[1] - 1)), key_padding_mask=padding)
        x = x.masked_fill(padding[..., None], 0.0).sum(dim=1)
        vectors.append(x / (~padding).sum(dim=1, keepdim=True).clamp(min=1))
        present.append(lengths > (overlap if first else 0) + first)
    stacked, there = torch.stack(vectors, dim=1), torch.stack(present, dim=1)  # (B, C, dim) and (B, C, 1)
    if pool == "mean":
        return (stacked * there).sum(dim=1) / there.sum(dim=1).clamp(min=1)
    largest = stacked.masked_fill(~there, -torch.inf).amax(dim=1)
    return largest.masked_fill(~there.any(dim=1), 0.0)


def _lengths(tokens: Tensor, key_padding_mask: Tensor | None) -> Tensor:
    """How many tokens each item has, (B, 1) int64."""
    if key_padding_mask is None:
        return torch.full((len(tokens), 1), tokens.shape[1], device=tokens.device)
    if key_padding_mask.shape != tokens.shape or key_padding_mask.dtype != torch.bool:
        raise ValueError(
            f"key_padding_mask is boolean of shape {tuple(tokens.shape)}, got {key_padding_mask.dtype} of "
            f"{tuple(key_padding_mask.shape)}"
        )
    if can_check_values(key_padding_mask) and bool((key_padding_mask[:, :-1] & ~key_padding_mask[:, 1:]).any()):
        raise ValueError("padding of documents stands at the right; got a token after padding")
    return (~key_padding_mask).sum(dim=1, keepdim=True)
