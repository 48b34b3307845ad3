"""Transformers per modality, made of one block."""

from relbias.models import graph, vision
from relbias.models.block import TransformerBlock
from relbias.models.graph import GraphTransformer

__all__ = ["GraphTransformer", "TransformerBlock", "graph", "vision"]
