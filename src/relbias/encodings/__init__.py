"""Encodings: what is trained. One method a file; a class with a name registers itself.

A new encoding needs one line here; the alias says that the name is public.
"""

from relbias.encodings.alibi import ALiBi as ALiBi
from relbias.encodings.ast_trans import ASTTrans as ASTTrans
from relbias.encodings.base import Encoding as Encoding
from relbias.encodings.base import list_encodings as list_encodings
from relbias.encodings.code_transformer import CodeTransformer as CodeTransformer
from relbias.encodings.cope import CoPE as CoPE
from relbias.encodings.cpe import CPE as CPE
from relbias.encodings.create import EncodingFactory as EncodingFactory
from relbias.encodings.create import EncodingSpec as EncodingSpec
from relbias.encodings.create import create_encoding as create_encoding
from relbias.encodings.deberta import DeBERTa as DeBERTa
from relbias.encodings.feature_mlp import FeatureMLP as FeatureMLP
from relbias.encodings.fire import Fire as Fire
from relbias.encodings.gaussian_3d import Gaussian3D as Gaussian3D
from relbias.encodings.graphormer_edges import GraphormerEdges as GraphormerEdges
from relbias.encodings.great import GREAT as GREAT
from relbias.encodings.grpe import GRPE as GRPE
from relbias.encodings.irpe import IRPE as IRPE
from relbias.encodings.kerple import Kerple as Kerple
from relbias.encodings.learned import Learned as Learned
from relbias.encodings.music_transformer import MusicTransformer as MusicTransformer
from relbias.encodings.none import NoEncoding as NoEncoding
from relbias.encodings.rope import RoPE as RoPE
from relbias.encodings.rope_axial import AxialRoPE as AxialRoPE
from relbias.encodings.rope_dynamic import DynamicNTKRoPE as DynamicNTKRoPE
from relbias.encodings.rope_linear import LinearRoPE as LinearRoPE
from relbias.encodings.rope_llama3 import Llama3RoPE as Llama3RoPE
from relbias.encodings.rope_longrope import LongRoPE as LongRoPE
from relbias.encodings.rope_mixed import MixedRoPE as MixedRoPE
from relbias.encodings.rope_ntk import NTKRoPE as NTKRoPE
from relbias.encodings.rope_yarn import YaRN as YaRN
from relbias.encodings.sandwich import Sandwich as Sandwich
from relbias.encodings.segment import Segment as Segment
from relbias.encodings.shaw import Shaw as Shaw
from relbias.encodings.shaw_axial import AxialShaw as AxialShaw
from relbias.encodings.sinusoidal import Sinusoidal as Sinusoidal
from relbias.encodings.sum import EncodingSum as EncodingSum
from relbias.encodings.swin_v2 import SwinV2 as SwinV2
from relbias.encodings.t5 import T5 as T5
from relbias.encodings.table import Table as Table
from relbias.encodings.transformer_xl import TransformerXL as TransformerXL
from relbias.encodings.wavlm import WavLM as WavLM
from relbias.encodings.xlnet import XLNet as XLNet
