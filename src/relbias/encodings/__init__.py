"""Encodings: what is trained. One method a file; a class with a name registers itself."""

from relbias.encodings.alibi import ALiBi
from relbias.encodings.ast_trans import ASTTrans
from relbias.encodings.base import Encoding, list_encodings
from relbias.encodings.code_transformer import CodeTransformer
from relbias.encodings.cope import CoPE
from relbias.encodings.cpe import CPE
from relbias.encodings.create import EncodingFactory, EncodingSpec, create_encoding
from relbias.encodings.deberta import DeBERTa
from relbias.encodings.feature_mlp import FeatureMLP
from relbias.encodings.fire import Fire
from relbias.encodings.gaussian_3d import Gaussian3D
from relbias.encodings.graphormer_edges import GraphormerEdges
from relbias.encodings.great import GREAT
from relbias.encodings.grpe import GRPE
from relbias.encodings.irpe import IRPE
from relbias.encodings.kerple import Kerple
from relbias.encodings.learned import Learned
from relbias.encodings.music_transformer import MusicTransformer
from relbias.encodings.none import NoEncoding
from relbias.encodings.rope import RoPE
from relbias.encodings.rope_axial import AxialRoPE
from relbias.encodings.rope_dynamic import DynamicNTKRoPE
from relbias.encodings.rope_linear import LinearRoPE
from relbias.encodings.rope_llama3 import Llama3RoPE
from relbias.encodings.rope_longrope import LongRoPE
from relbias.encodings.rope_mixed import MixedRoPE
from relbias.encodings.rope_ntk import NTKRoPE
from relbias.encodings.rope_yarn import YaRN
from relbias.encodings.sandwich import Sandwich
from relbias.encodings.segment import Segment
from relbias.encodings.shaw import Shaw
from relbias.encodings.shaw_axial import AxialShaw
from relbias.encodings.sinusoidal import Sinusoidal
from relbias.encodings.sum import EncodingSum
from relbias.encodings.swin_v2 import SwinV2
from relbias.encodings.t5 import T5
from relbias.encodings.table import Table
from relbias.encodings.transformer_xl import TransformerXL
from relbias.encodings.wavlm import WavLM
from relbias.encodings.xlnet import XLNet

__all__ = [
    "CPE",
    "GREAT",
    "GRPE",
    "IRPE",
    "T5",
    "ALiBi",
    "ASTTrans",
    "AxialRoPE",
    "AxialShaw",
    "CoPE",
    "CodeTransformer",
    "DeBERTa",
    "DynamicNTKRoPE",
    "Encoding",
    "EncodingFactory",
    "EncodingSpec",
    "EncodingSum",
    "FeatureMLP",
    "Fire",
    "Gaussian3D",
    "GraphormerEdges",
    "Kerple",
    "Learned",
    "LinearRoPE",
    "Llama3RoPE",
    "LongRoPE",
    "MixedRoPE",
    "MusicTransformer",
    "NTKRoPE",
    "NoEncoding",
    "RoPE",
    "Sandwich",
    "Segment",
    "Shaw",
    "Sinusoidal",
    "SwinV2",
    "Table",
    "TransformerXL",
    "WavLM",
    "XLNet",
    "YaRN",
    "create_encoding",
    "list_encodings",
]
