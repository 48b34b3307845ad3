"""Transformers per modality, made of one block."""

from relbias.models import vision
from relbias.models.block import TransformerBlock

__all__ = ["TransformerBlock", "vision"]
