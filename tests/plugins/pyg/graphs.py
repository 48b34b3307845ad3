"""Graphs for the tests."""

import torch
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected


def random_graph(nodes: int, edges: int, seed: int, undirected: bool = True) -> Data:
    """With features, attributes of edges and places; undirected ones have no edge from a node to itself."""
    generator = torch.Generator().manual_seed(seed)
    index = torch.randint(max(nodes, 1), (2, edges if nodes else 0), generator=generator)
    if undirected:
        index = to_undirected(index[:, index[0] != index[1]], num_nodes=nodes)
    return Data(
        x=torch.randn(nodes, 4, generator=generator),
        edge_index=index,
        edge_attr=torch.randint(3, (index.shape[1],), generator=generator),
        pos=torch.randn(nodes, 3, generator=generator),
        y=torch.tensor([float(seed)]),
    )


def traps() -> list[Data]:
    """A usual graph, one in several parts, one whose last nodes are alone, single nodes, no edges, n n edges, loops."""
    complete = torch.cartesian_prod(torch.arange(3), torch.arange(3)).T.contiguous()
    graphs = [random_graph(9, 14, 1), random_graph(12, 5, 2), random_graph(1, 0, 3), random_graph(4, 0, 4)]
    last = random_graph(5, 6, 5)
    more = random_graph(3, 0, 9)
    last.x, last.pos = torch.cat((last.x, more.x)), torch.cat((last.pos, more.pos))
    full = random_graph(3, 0, 6)
    full.edge_index, full.edge_attr = complete, torch.zeros(9, dtype=torch.long)
    loop = random_graph(1, 0, 7)
    loop.edge_index, loop.edge_attr = torch.zeros(2, 1, dtype=torch.long), torch.zeros(1, dtype=torch.long)
    return [*graphs, last, full, loop, random_graph(7, 10, 8)]
