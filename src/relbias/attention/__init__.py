"""Attention: the equation, its implementations, and the layer."""

from relbias.attention.cache import KVCache
from relbias.attention.functional import Explanation, explain, list_implementations, relative_attention
from relbias.attention.implementation import Implementation
from relbias.attention.module import RelativeAttention

__all__ = [
    "Explanation",
    "Implementation",
    "KVCache",
    "RelativeAttention",
    "explain",
    "list_implementations",
    "relative_attention",
]
