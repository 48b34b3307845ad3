"""Text from a model, token by token."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from relbias.models.documents import padded_positions
from relbias.models.encoder_decoder import EncoderDecoder
from relbias.models.language_model import LanguageModel
from relbias.models.sampling import check_sampling, sample
from relbias.models.token_embedding import check_tokens
from relbias.relations.base import can_check_values, check_size


@torch.no_grad()
def generate(
    model: LanguageModel | EncoderDecoder,
    tokens: Tensor,
    max_new_tokens: int,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    key_padding_mask: Tensor | None = None,
    source: Tensor | None = None,
    source_padding_mask: Tensor | None = None,
    generator: torch.Generator | None = None,
    stop_token: int | None = None,
) -> Tensor:
    """Continue sequences, with the keys and values of the tokens so far in caches.

    Each step gives the logits that the whole model gives for the last token, but for rotations that depend on the
    length (rope_dynamic, rope_longrope) beyond the length that they were made for: there the deeper blocks' keys were
    made from what earlier, shorter steps computed. Dropout is off, and the model's modes are left as they are.

    Args:
        model: a `LanguageModel`, or an `EncoderDecoder` with a source.
        tokens: (B, N) integers, N at least 1: what is continued; of an `EncoderDecoder` the start of the target.
        max_new_tokens: how many tokens are added.
        temperature: 0 for the likeliest token, else that of `sample`.
        top_k: as in `sample`.
        top_p: as in `sample`.
        key_padding_mask: (B, N) bool, True = padding, at the left of shorter items. Positions count from the first
            token of each.
        source: (B, M) integers, of an `EncoderDecoder`; encoded once.
        source_padding_mask: (B, M) bool, True = padding.
        generator: of the random numbers.
        stop_token: an item ends with this token, which also fills the rest of its row.

    Returns:
        (B, N + T) int64, the tokens and those added; T is `max_new_tokens`, or less where all items have ended.

    Raises:
        ValueError: the encoding cannot decode step by step, or has no positions for N + `max_new_tokens` tokens; there
            is nothing to continue; padding that is not at the left; or an argument is out of range. Nothing has been
            generated then.

    Example:
        >>> import relbias as rb
        >>> model = rb.models.LanguageModel("alibi", num_tokens=65, dim=32)
        >>> rb.generate(model, torch.zeros(2, 3, dtype=torch.long), 5).shape
        torch.Size([2, 8])
    """
    check_size("max_new_tokens", max_new_tokens, 0)
    check_sampling(temperature, top_k, top_p)
    tokens = check_tokens(tokens, model.num_tokens)
    if stop_token is not None and not 0 <= stop_token < model.num_tokens:
        raise ValueError(f"stop_token must be from 0 to {model.num_tokens - 1}, got {stop_token}")
    if tokens.shape[1] == 0:
        raise ValueError("there are no tokens to continue; give each item at least a start token")
    check_decoding(model, tokens.shape[1] + max_new_tokens)
    arguments: dict[str, Any] = {"caches": model.new_caches()}
    if key_padding_mask is not None:
        arguments |= {"key_padding_mask": key_padding_mask, "positions": _positions(key_padding_mask, tokens)}
    with _evaluation(model):
        step = _step(model, source, source_padding_mask)
        ended = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
        new = tokens
        for _ in range(max_new_tokens):
            chosen = sample(step(new, **arguments)[:, -1], temperature, top_k, top_p, generator)
            if stop_token is not None:
                chosen = chosen.masked_fill(ended, stop_token)
                ended = ended | (chosen == stop_token)
            new = chosen[:, None]
            tokens = torch.cat((tokens, new), dim=1)
            if stop_token is not None and bool(ended.all()):
                break
            if key_padding_mask is not None:
                arguments |= {"key_padding_mask": None, "positions": arguments["positions"][:, -1:] + 1}
    return tokens


def check_decoding(model: LanguageModel | EncoderDecoder, length: int) -> None:
    """Raise ValueError unless the model can make a sequence of so many tokens step by step."""
    model.embedding.check_length(length)
    for block in model.blocks:
        encoding = block.attention.encoding
        if encoding.makes_keys:
            raise ValueError(
                f"{encoding.label} makes keys from the inputs of all tokens, which a cache does not keep: it cannot "
                "decode step by step; call the model on the whole sequence instead"
            )


def _step(
    model: LanguageModel | EncoderDecoder, source: Tensor | None, source_padding_mask: Tensor | None
) -> Callable[..., Tensor]:
    """The function from new tokens, and the caches of the others, to logits."""
    if isinstance(model, EncoderDecoder):
        if source is None:
            raise ValueError("an EncoderDecoder continues the target of a source; give source")
        encoded = model.encode(source, source_padding_mask)
        return partial(model.decode, encoded=encoded, source_padding_mask=source_padding_mask)
    if source is not None or source_padding_mask is not None:
        raise ValueError(f"a source is for an EncoderDecoder; {type(model).__name__} continues tokens")
    return model


def _positions(key_padding_mask: Tensor, tokens: Tensor) -> Tensor:
    """The positions of tokens with padding at the left, (B, N) int64."""
    positions = padded_positions(key_padding_mask)
    if key_padding_mask.shape != tokens.shape:
        raise ValueError(
            f"key_padding_mask must have the tokens' shape {tuple(tokens.shape)}, got {tuple(key_padding_mask.shape)}"
        )
    if can_check_values(key_padding_mask):
        later = key_padding_mask[:, 1:] & ~key_padding_mask[:, :-1]
        if bool(later.any()) or bool(key_padding_mask[:, -1].any()):
            raise ValueError(
                "padding of sequences to be continued stands at the left, and each has a token; got padding after a "
                "token, or alone"
            )
    return positions


@contextmanager
def _evaluation(model: nn.Module) -> Generator[None]:
    """The model in evaluation mode, and afterwards each of its modules in its own again."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
