"""Graphs of PyG: what is known of the pairs of their nodes, batches of similar graphs, and encodings in GPSConv."""

from relbias.plugins.pyg.buckets import BucketSampler
from relbias.plugins.pyg.data import graph_batch, shortest_paths
from relbias.plugins.pyg.plugin import attach, detach, settings
from relbias.plugins.pyg.transforms import AddDegrees, AddPathEdges, AddRandomWalks, AddResistances, AddShortestPaths

__all__ = [
    "AddDegrees",
    "AddPathEdges",
    "AddRandomWalks",
    "AddResistances",
    "AddShortestPaths",
    "BucketSampler",
    "attach",
    "detach",
    "graph_batch",
    "settings",
    "shortest_paths",
]
