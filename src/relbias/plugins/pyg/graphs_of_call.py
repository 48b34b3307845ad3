"""The graphs of a call of a GPSConv, and their indices, which all layers that are handed the same graphs share.

A GPSConv makes them from its own arguments. That the next one in the model is handed the very same tensors is known
while a call of the model runs, so hooks at the module that `attach` was given bind a place to keep the last graphs for
the time of its call. A layer that is called outside of it, such as one that is recomputed in the backward pass, makes
its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from relbias.plugins.binding import bound, rebind
from relbias.plugins.pyg.data import plain_index
from relbias.relations import GraphBatch, GraphRelation, Index


class GraphsOfCall:
    """Graphs, and the indices made from them so far.

    An index through which gradients flow, such as that of edges with features, is made for each layer: a layer that is
    checkpointed is recomputed by itself, and must save the same tensors then.

    Args:
        num_nodes: V.
        edge_index: (2, E) int64.
        batch: (V,) int64, or None.
        edge_attr: (E, ...), or None.
        pos: (V, S), or None.
    """

    def __init__(
        self,
        num_nodes: int,
        edge_index: Tensor,
        batch: Tensor | None = None,
        edge_attr: Tensor | None = None,
        pos: Tensor | None = None,
    ) -> None:
        batch = None if batch is None else plain_index(batch)
        self.graphs = GraphBatch(plain_index(edge_index), num_nodes, batch, edge_attr=edge_attr, pos=pos)
        self._given = num_nodes, edge_index, batch, edge_attr, pos
        self._state = _state(self._given)
        self._indices: dict[GraphRelation, Index] = {}

    def are(self, *given: Any) -> bool:
        """Whether they are made from these very tensors, which are as they were then, and in the same mode of torch.

        Args:
            *given: the arguments in their order.
        """
        same = all(one is other for one, other in zip(self._given[1:], given[1:], strict=True))
        return same and self._given[0] == given[0] and self._state == _state(given)

    @torch.compiler.disable  # sizes come from values, for which a graph would be compiled anew with every batch
    def index(self, relation: GraphRelation | Mapping[str, GraphRelation]) -> Any:
        """The index of a relation, or for a mapping of relations a mapping of indices.

        Args:
            relation: one that can be made from graphs, or several by key.
        """
        if isinstance(relation, Mapping):
            return {key: self.index(part) for key, part in relation.items()}
        index = self._indices.get(relation)
        if index is None:
            index = relation.of_graphs(self.graphs)
            if not _has_gradients(index):
                self._indices[relation] = index
        return index


class CallOfModel:
    """A running call of a model.

    Args:
        outer: what was bound around it.
    """

    def __init__(self, outer: Any) -> None:
        self.outer = outer
        self.last: GraphsOfCall | None = None


@torch.compiler.disable
def graphs_of_call(*given: Any) -> GraphsOfCall:
    """The graphs made from these tensors, those of the layer before if it was handed the same.

    Args:
        *given: the arguments of :class:`GraphsOfCall`, in their order.
    """
    call = bound()
    if not isinstance(call, CallOfModel):
        return GraphsOfCall(*given)
    if call.last is None or not call.last.are(*given):
        call.last = GraphsOfCall(*given)
    return call.last


def share_graphs(root: nn.Module) -> None:
    """Let the layers inside a module share graphs while it is being called.

    Args:
        root: gets two hooks.
    """
    root.register_forward_pre_hook(_enter)
    root.register_forward_hook(_leave, always_call=True)


def stop_sharing(root: nn.Module) -> None:
    """Undo `share_graphs`.

    Args:
        root: given to `share_graphs`, or a copy of it.
    """
    for hooks, own in ((root._forward_pre_hooks, _enter), (root._forward_hooks, _leave)):
        for key in [key for key, hook in hooks.items() if hook is own]:
            del hooks[key]
            root._forward_hooks_always_called.pop(key, None)


def _enter(root: nn.Module, args: Any) -> None:
    rebind(CallOfModel(bound()))


def _leave(root: nn.Module, args: Any, output: Any) -> None:
    call = bound()
    if isinstance(call, CallOfModel):
        rebind(call.outer)


def _has_gradients(part: Any) -> bool:
    """Whether gradients flow through an index, or a part of one."""
    if isinstance(part, Tensor):
        return part.requires_grad
    return any(map(_has_gradients, vars(part).values())) if hasattr(part, "__dict__") else False


def _state(given: tuple[Any, ...]) -> list[Any]:
    """What else decides about an index: how often each tensor was changed in place (of inference tensors nobody counts
    it), and whether gradients are recorded and numbers cast."""
    tensors = [one for one in given if isinstance(one, Tensor)]
    modes = (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled(tensors[0].device.type),
    )
    return [*modes, *(0 if tensor.is_inference() else tensor._version for tensor in tensors)]
