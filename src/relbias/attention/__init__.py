"""Attention: the equation, its implementations, and the layer."""

from relbias.attention.cache import KVCache
from relbias.attention.capture import Captured, capture
from relbias.attention.functional import Explanation, explain, list_implementations, relative_attention
from relbias.attention.implementation import Implementation
from relbias.attention.module import RelativeAttention

__all__ = [
    "Captured",
    "Explanation",
    "Implementation",
    "KVCache",
    "RelativeAttention",
    "capture",
    "explain",
    "list_implementations",
    "relative_attention",
]
