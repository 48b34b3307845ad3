"""Transformers per modality, made of one block."""

from relbias.models import graph, vision
from relbias.models.block import TransformerBlock
from relbias.models.documents import document_positions, padded_positions
from relbias.models.graph import GraphTransformer
from relbias.models.language_model import LanguageModel

__all__ = [
    "GraphTransformer",
    "LanguageModel",
    "TransformerBlock",
    "document_positions",
    "graph",
    "padded_positions",
    "vision",
]
