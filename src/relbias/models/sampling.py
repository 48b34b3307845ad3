"""The choice of the next token."""

from __future__ import annotations

import torch
from torch import Tensor

from relbias.relations.base import check_number, check_size


def check_sampling(temperature: float, top_k: int | None, top_p: float | None) -> None:
    """Raise ValueError unless `sample` can take these."""
    check_number("temperature", temperature, 0)
    if temperature == 0 and (top_k is not None or top_p is not None):
        raise ValueError("top_k and top_p are of sampling; give a temperature above 0 as well")
    if top_k is not None:
        check_size("top_k", top_k, 1)
    if top_p is not None:
        check_number("top_p", top_p, 0, above=True)
        if top_p > 1:
            raise ValueError(f"top_p is a probability, above 0 and at most 1, got {top_p}")


def sample(
    logits: Tensor,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Draw a token of each item from softmax(logits / temperature), or take the likeliest.

    Args:
        logits: (B, num_tokens).
        temperature: 0 for the likeliest token.
        top_k: draw among so many of the likeliest tokens.
        top_p: draw among the likeliest tokens, as few as have this probability together
            (https://arxiv.org/abs/1904.09751); with `top_k` their probabilities among those.
        generator: of the random numbers, on the logits' device.

    Returns:
        (B,) int64.

    Raises:
        ValueError: a number is out of range, or `top_k` or `top_p` was given with the temperature 0.

    Example:
        >>> logits = torch.tensor([[0.1, 0.7, 0.2]]).log()
        >>> sample(logits), sample(logits, temperature=1.0, top_p=0.5)
        (tensor([1]), tensor([1]))
    """
    check_sampling(temperature, top_k, top_p)
    if temperature == 0:
        return logits.argmax(dim=-1)
    probabilities = (logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature).softmax(dim=-1)
    if top_k is None and top_p is None:
        return torch.multinomial(probabilities, 1, generator=generator)[:, 0]
    likeliest, tokens = probabilities.sort(dim=-1, descending=True, stable=True)
    if top_k is not None:
        likeliest = likeliest[:, :top_k] / likeliest[:, :top_k].sum(dim=-1, keepdim=True)
    if top_p is not None:
        likelier = likeliest.cumsum(dim=-1) - likeliest  # the probability of the tokens before
        likeliest = likeliest.masked_fill(likelier >= top_p, 0.0)
    return tokens.gather(1, torch.multinomial(likeliest, 1, generator=generator))[:, 0]
