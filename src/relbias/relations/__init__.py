"""Relations: rules that say which code holds between two tokens, and indices, their form in one call."""

from relbias.relations.base import Index, Relation
from relbias.relations.bins import Bins, BinsIndex
from relbias.relations.distances import Distances, DistancesIndex
from relbias.relations.edge_paths import EdgePaths, EdgePathsIndex
from relbias.relations.edge_sets import EdgeSets, EdgeSetsIndex
from relbias.relations.edges import EdgeTypes, edge_types
from relbias.relations.features import Features, FeaturesIndex
from relbias.relations.graph_batch import PAIR_VALUES, GraphBatch, GraphRelation
from relbias.relations.graph_features import pairwise_distances, random_walks, resistance_distances
from relbias.relations.grid import Grid, GridIndex
from relbias.relations.head_groups import HeadGroups, HeadGroupsIndex
from relbias.relations.labels import Labels, LabelsIndex
from relbias.relations.pairs import Hops, HopsIndex, Pairs, PairsIndex
from relbias.relations.path_lengths import shortest_paths
from relbias.relations.product import Product, ProductIndex
from relbias.relations.sequence import Sequence, SequenceIndex
from relbias.relations.tree import TREE_NEIGHBORS, ancestor_codes, depth_codes, neighbor_codes, sibling_codes
from relbias.relations.tree_bins import UNRELATED, fixed_bins, growing_values
from relbias.relations.tree_paths import step_codes, tree_hops, tree_steps
from relbias.relations.tree_sample_bins import sample_bins
from relbias.relations.tree_tokens import between_tokens
from relbias.relations.tree_walks import tree_pageranks
from relbias.relations.volume import Volume, VolumeIndex
from relbias.relations.walks import RandomWalks, Resistances

__all__ = [
    "PAIR_VALUES",
    "TREE_NEIGHBORS",
    "UNRELATED",
    "Bins",
    "BinsIndex",
    "Distances",
    "DistancesIndex",
    "EdgePaths",
    "EdgePathsIndex",
    "EdgeSets",
    "EdgeSetsIndex",
    "EdgeTypes",
    "Features",
    "FeaturesIndex",
    "GraphBatch",
    "GraphRelation",
    "Grid",
    "GridIndex",
    "HeadGroups",
    "HeadGroupsIndex",
    "Hops",
    "HopsIndex",
    "Index",
    "Labels",
    "LabelsIndex",
    "Pairs",
    "PairsIndex",
    "Product",
    "ProductIndex",
    "RandomWalks",
    "Relation",
    "Resistances",
    "Sequence",
    "SequenceIndex",
    "Volume",
    "VolumeIndex",
    "ancestor_codes",
    "between_tokens",
    "depth_codes",
    "edge_types",
    "fixed_bins",
    "growing_values",
    "neighbor_codes",
    "pairwise_distances",
    "random_walks",
    "resistance_distances",
    "sample_bins",
    "shortest_paths",
    "sibling_codes",
    "step_codes",
    "tree_hops",
    "tree_pageranks",
    "tree_steps",
]
