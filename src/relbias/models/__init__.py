"""Transformers per modality, made of one block."""

from relbias.models import graph, vision
from relbias.models.block import TransformerBlock
from relbias.models.chunks import encode_in_chunks
from relbias.models.documents import document_positions, padded_positions
from relbias.models.encoder import SequenceEncoder
from relbias.models.encoder_decoder import EncoderDecoder
from relbias.models.generation import generate
from relbias.models.graph import GraphTransformer
from relbias.models.language_model import LanguageModel
from relbias.models.memory import SegmentMemory
from relbias.models.spectrogram import SpectrogramTransformer

__all__ = [
    "EncoderDecoder",
    "GraphTransformer",
    "LanguageModel",
    "SegmentMemory",
    "SequenceEncoder",
    "SpectrogramTransformer",
    "TransformerBlock",
    "document_positions",
    "encode_in_chunks",
    "generate",
    "graph",
    "padded_positions",
    "vision",
]
