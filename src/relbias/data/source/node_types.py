"""The types of the nodes of syntax trees as numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import torch
from torch import Tensor

from relbias.data.source.parsed import ParsedSource
from relbias.relations.base import check_size


class NodeTypes:
    """A number for each frequent type of node of some sources, the most frequent first, from 1; 0 is any other.

    Args:
        sources: those whose types have numbers, such as the training part.
        size: how many numbers there are at most, 0 included.

    Raises:
        ValueError: a size below 1.

    Example:
        >>> from relbias.data.source.python import parse_python
        >>> types = NodeTypes([parse_python("x = y")])
        >>> types.names, types.encode(parse_python("x = 1")).tolist()
        (('Name', 'Assign', 'Module'), [3, 2, 1, 0])
    """

    def __init__(self, sources: Iterable[ParsedSource], size: int = 256) -> None:
        check_size("size", size, 1)
        counts: Counter[str] = Counter()
        for source in sources:
            counts.update(source.node_types)
        # Those that are equally frequent in the order of the alphabet, so that the order of the files does not count.
        self._number(sorted(counts, key=lambda name: (-counts[name], name))[: size - 1])

    @classmethod
    def of_names(cls, names: Iterable[str]) -> NodeTypes:
        """The numbers of these `names`, in their order.

        Example:
            >>> len(NodeTypes.of_names(["Name", "Assign"]))
            3
        """
        types = cls(())
        types._number(names)
        return types

    def _number(self, names: Iterable[str]) -> None:
        self.names = tuple(names)
        self._numbers = {name: number for number, name in enumerate(self.names, start=1)}

    def __len__(self) -> int:
        return len(self.names) + 1

    def encode(self, source: ParsedSource) -> Tensor:
        """The numbers of a source's nodes, (V,) int64."""
        return torch.tensor([self._numbers.get(name, 0) for name in source.node_types], dtype=torch.int64)
