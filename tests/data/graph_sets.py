"""Small data sets of graphs, made up."""

import torch
from torch_geometric.data import Data, InMemoryDataset

SIZES = [3, 1, 5, 4, 2, 6, 3, 4, 1, 5, 7, 2]


def ring(num_nodes, y=None, **more):
    """A ring of categories, with an edge type."""
    source = torch.arange(num_nodes if num_nodes > 1 else 0)
    target = (source + 1) % num_nodes
    edge_index = torch.stack((torch.cat((source, target)), torch.cat((target, source))))
    fields = {"x": torch.arange(num_nodes)[:, None] % 4, "edge_attr": torch.arange(edge_index.shape[1]) % 2}
    return Data(**{**fields, "edge_index": edge_index, "y": y, "num_nodes": num_nodes, **more})


class Rings(InMemoryDataset):
    """Rings of different sizes; y(position, number of nodes) gives the target."""

    def __init__(self, y, count=60):
        super().__init__()
        sizes = [SIZES[position % len(SIZES)] for position in range(count)]
        self.data, self.slices = self.collate([ring(size, y(position, size)) for position, size in enumerate(sizes)])


class Parted(Rings):
    """With parts of its own."""

    made: list = []

    def __init__(self, split="train"):
        self.made.append(split)
        counts = {"train": 20, "val": 8, "test": 6}
        super().__init__(lambda position, size: torch.tensor([float(size)]), count=counts[split])


def sizes(position=0, size=0):
    """A regression: the number of nodes, in tens."""
    return torch.tensor([10.0 * size])


def parity(position=0, size=0):
    """Two classes."""
    return torch.tensor([size % 2])


def labels(position=0, size=0):
    """Three labels, one of which is missing in every third graph, and one always."""
    missing = float("nan") if position % 3 == 0 else float(size > 3)
    return torch.tensor([[float(size % 2), missing, float("nan")]])
