"""The logits and weights of every layer."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor, nn

from relbias.attention.call import Call
from relbias.attention.masks import safe_softmax
from relbias.attention.observe import observe
from relbias.attention.reference import logits


@dataclass(frozen=True, eq=False)
class Captured:
    """One call of attention; float32, or float64 where q is.

    Args:
        name: of the layer within the model, such as "blocks.0.attention"; "" for the model itself.
        logits: (B, H, N, M), s_ij with all terms and masks; -inf where a key is hidden.
        weights: (B, H, N, M), their softmax over the keys, before dropout; 0 for a query that may attend to nothing.
    """

    name: str
    logits: Tensor
    weights: Tensor


@contextmanager
def capture(model: nn.Module) -> Generator[list[Captured]]:
    r"""Record the logits and weights of every layer, whatever implementation computes them.

    .. math:: s_{ij} \text{ of `relative_attention`}, \quad a_{ij} = softmax_j(s)_{ij}

    They are computed beside the model's own computation, by the reference, from the same q, k and terms. The model's
    outputs, gradients, random numbers and modes stay exactly what they are without, and the records are not part of
    the graph. Each record holds 2 B H N M numbers for as long as the list is kept.

    Recorded is what the model's modules call in this thread. Activation checkpointing's recomputation in the backward
    pass is not recorded again.

    Args:
        model: any module with attention of this library in it: its own layers, attached models, one's own modules
            that call `relative_attention`. A layer that is used under two names is recorded under the first.

    Returns:
        A context manager that gives a list, to which each call of attention appends one `Captured`, in the order of
        the calls: two for a layer that is called twice.

    Raises:
        ValueError: no attention of this library ran, for example because the model is compiled.

    Example:
        >>> import torch, relbias as rb
        >>> attention = rb.RelativeAttention(64, num_heads=4, encoding="t5")
        >>> with rb.capture(attention) as captured:
        ...     y = attention(torch.randn(2, 10, 64), is_causal=True)
        >>> captured[0].weights.shape, captured[0].logits[0, 0, 0, 1].item()
        (torch.Size([2, 4, 10, 10]), -inf)
    """
    captured: list[Captured] = []

    def record(name: str, call: Call) -> None:
        values = logits(call)
        captured.append(Captured(name, values, safe_softmax(values)))

    with observe(model, record):
        yield captured
    if not captured:
        raise ValueError(
            f"no attention of relbias ran in {type(model).__name__}: call the model itself inside the with-block, "
            "uncompiled (torch.compile hides its layers) and with an encoding attached or relbias attention in it"
        )
