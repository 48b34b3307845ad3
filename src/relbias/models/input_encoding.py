"""Where a model applies its encoding: at its input, once, or in each of its layers."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from relbias.encodings import Encoding, EncodingSpec, create_encoding
from relbias.encodings.base import find_encoding
from relbias.relations import Relation


def split_encoding(
    encoding: EncodingSpec | Encoding,
    num_heads: int,
    head_dim: int,
    relation: Relation | None = None,
    max_length: int | None = None,
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> tuple[Any, EncodingSpec | Encoding]:
    """Builds an encoding that is applied at the input (sinusoidal, learned), and leaves any other to the layers.

    Args:
        encoding: of the model, as in `create_encoding`.
        num_heads: H.
        head_dim: D.
        relation: as in `create_encoding`.
        max_length: the number of positions, for an encoding that has a vector for each.
        device: where parameters lie.
        dtype: of the parameters.

    Returns:
        The encoding that is applied at the input, or None; and the one for the layers, "none" where there is the first.

    Raises:
        ValueError: the encoding does not take the sizes or the relation, or needs a length and there is none.

    Example:
        >>> split_encoding("alibi", num_heads=4, head_dim=16)
        (None, 'alibi')
        >>> split_encoding("sinusoidal", num_heads=4, head_dim=16)
        (Sinusoidal(num_heads=4, head_dim=16, relation=Sequence(max_distance=None)), 'none')
    """
    options: dict[str, Any] = {"max_length": max_length} if _has_max_length(encoding) else {}
    first = create_encoding(encoding, num_heads, head_dim, relation, **options)
    if hasattr(first, "embed"):
        return first.to(device=device, dtype=dtype), "none"
    return None, encoding


def _has_max_length(encoding: Any) -> bool:
    """Whether it is the name or the class of an encoding with the option max_length."""
    cls = find_encoding(encoding) if isinstance(encoding, str) else encoding
    return inspect.isclass(cls) and "max_length" in inspect.signature(cls).parameters
