"""Relations: rules that say which code holds between two tokens, and indices, their form in one call."""

from relbias.relations.base import Index, Relation
from relbias.relations.edge_sets import EdgeSets, EdgeSetsIndex
from relbias.relations.edges import edge_types
from relbias.relations.grid import Grid, GridIndex
from relbias.relations.pairs import Hops, HopsIndex, Pairs, PairsIndex
from relbias.relations.sequence import Sequence, SequenceIndex
from relbias.relations.volume import Volume, VolumeIndex

__all__ = [
    "EdgeSets",
    "EdgeSetsIndex",
    "Grid",
    "GridIndex",
    "Hops",
    "HopsIndex",
    "Index",
    "Pairs",
    "PairsIndex",
    "Relation",
    "Sequence",
    "SequenceIndex",
    "Volume",
    "VolumeIndex",
    "edge_types",
]
