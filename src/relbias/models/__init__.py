"""Transformers per modality, made of one block."""

from relbias.models import graph, vision
from relbias.models.block import TransformerBlock
from relbias.models.chunks import encode_in_chunks
from relbias.models.code import SourceTransformer
from relbias.models.code_heads import ClassificationHead, PointerHead
from relbias.models.conformer import Conformer
from relbias.models.conformer_block import ConformerBlock
from relbias.models.documents import document_positions, padded_positions
from relbias.models.encoder import SequenceEncoder
from relbias.models.encoder_decoder import EncoderDecoder
from relbias.models.frame_streams import ConformerStream, FrameStream
from relbias.models.generation import generate
from relbias.models.graph import GraphTransformer
from relbias.models.hold_and_bigram import HoldAndBigram
from relbias.models.language_model import LanguageModel
from relbias.models.memory import SegmentMemory
from relbias.models.music import MusicTransformer
from relbias.models.spectrogram import SpectrogramTransformer
from relbias.models.speech import SpeechTransformer
from relbias.models.speech_conformer import SpeechConformer
from relbias.models.subsampling import ConvSubsampling

__all__ = [
    "ClassificationHead",
    "Conformer",
    "ConformerBlock",
    "ConformerStream",
    "ConvSubsampling",
    "EncoderDecoder",
    "FrameStream",
    "GraphTransformer",
    "HoldAndBigram",
    "LanguageModel",
    "MusicTransformer",
    "PointerHead",
    "SegmentMemory",
    "SequenceEncoder",
    "SourceTransformer",
    "SpectrogramTransformer",
    "SpeechConformer",
    "SpeechTransformer",
    "TransformerBlock",
    "document_positions",
    "encode_in_chunks",
    "generate",
    "graph",
    "padded_positions",
    "vision",
]
