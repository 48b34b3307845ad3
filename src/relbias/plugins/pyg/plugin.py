"""Attach encodings of the relations between a graph's nodes to PyG's GPSConv, detach them and describe them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from relbias._extras import extra
from relbias.encodings import Encoding, EncodingSpec
from relbias.plugins import engine
from relbias.plugins.pyg.gps_conv import AttachedGPSConv, GraphMultiheadAttention
from relbias.plugins.pyg.graphs_of_call import GraphsOfCall, share_graphs, stop_sharing
from relbias.plugins.relations import as_relation, describe_relation
from relbias.plugins.torch.plugin import refuse_added_keys
from relbias.relations import EdgePaths, GraphRelation, Hops, RandomWalks, Resistances

with extra("graph"):
    from torch_geometric.nn import GPSConv

_USUAL: dict[str, GraphRelation] = {"hops": Hops(20), "walks": RandomWalks(16), "resistance": Resistances()}


def attach(
    model: nn.Module,
    encoding: EncodingSpec | Encoding,
    *,
    relation: GraphRelation | Mapping[str, Any] | None = None,
    **options: Any,
) -> None:
    """Give the attention of every GPSConv an encoding of the relation between the nodes of a graph, in place.

    The index is made from the `edge_index`, `batch`, `edge_attr` and `pos` that each GPSConv is called with; what a
    transform such as `AddShortestPaths` stored is not among them. Layers that one call of the model hands the same
    tensors share the index, so give the module that is called, not a list of its layers. The output
    stays what it was until training moves the encoding: exactly in eval mode without gradients, on CPU in float32,
    where torch's fused inference for nn.MultiheadAttention is off
    (torch.backends.mha.set_fastpath_enabled(False)), else up to rounding. Parameters keep their names; new ones are at
    `<conv>.attn.encoding.*`. Give the optimizer the new parameters: attach before building it.

    Args:
        model: a GPSConv, or any module with such inside.
        encoding: a name, a mapping of names whose terms are summed, a callable that is given (num_heads, head_dim,
            relation), built once per GPSConv; or an encoding already built, which is set to zero and shared by all.
        relation: one that can be made from graphs, without prefix tokens, `Hops(20)` by default; for a mapping of
            encodings also a mapping with the same keys, where an absent "hops", "walks" or "resistance" is `Hops(20)`,
            `RandomWalks(16)` or `Resistances()`; or such in plain values, as in `settings`.
        **options: of the encoding.

    Raises:
        ValueError: there is no GPSConv with multi-head attention, an encoding is attached already, or the encoding or
            its relation does not suit. The model is then as it was.

    Example:
        >>> import torch
        >>> from torch_geometric.nn import GINConv, GPSConv
        >>> conv = GPSConv(64, GINConv(torch.nn.Linear(64, 64)), heads=4)
        >>> attach(conv, encoding="table")
        >>> conv.attn.encoding
        Table(num_heads=4, head_dim=16, relation=Hops(max_distance=20, prefix_tokens=0, one_prefix_code=False))
        >>> conv(torch.zeros(3, 64), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])).shape
        torch.Size([3, 64])
    """
    engine.check_free(model)
    convs = _find(model)
    given = _relation_of(encoding, relation)
    engine.attach(
        model,
        [
            engine.Site(
                conv.attn,
                GraphMultiheadAttention,
                conv.attn.num_heads,
                conv.attn.head_dim,
                conv.attn.in_proj_weight,
                given,
            )
            for conv in convs
        ],
        encoding,
        trial_index=lambda candidate: _trial_graphs(candidate).index(candidate.relation),
        classes=dict.fromkeys(convs, AttachedGPSConv),
        settings={},
        options=options,
    )
    share_graphs(model)


def detach(model: nn.Module) -> None:
    """Undo `attach`, in place: the model is what it was, without the encodings and what they learned.

    Args:
        model: given to `attach` before.

    Raises:
        ValueError: nothing is attached.
    """
    holder = engine.holder_of(model)
    engine.detach(model)
    stop_sharing(holder)


def settings(model: nn.Module) -> dict[str, Any]:
    """What `attach` needs to give an equal model the same encodings: `attach(fresh, **settings)`, then load weights.

    Args:
        model: given to `attach` before.

    Returns:
        A dict of plain values, to be kept beside the checkpoint, as JSON for example.

    Raises:
        ValueError: nothing is attached, or the encoding or its relation was given as an object of one's own or a
            function.

    Example:
        >>> from torch_geometric.nn import GPSConv
        >>> conv = GPSConv(64, None, heads=4)
        >>> attach(conv, {"hops": "table", "walks": "feature_mlp"}, relation={"hops": Hops(5)})
        >>> settings(conv)["relation"]["walks"]
        {'name': 'RandomWalks', 'num_steps': 16, 'prefix_tokens': 0}
    """
    written = engine.settings(model)
    relation = engine.encodings(model)[0].relation
    if isinstance(relation, Mapping):
        return written | {"relation": {key: describe_relation(part) for key, part in relation.items()}}
    return written | {"relation": describe_relation(relation)}


def _relation_of(encoding: Any, given: Any) -> Any:
    """The relation, or for a mapping of encodings the mapping of relations, that the nodes get."""
    if given is None:
        usual: Any = {} if isinstance(encoding, Mapping) else _USUAL["hops"]
        given = encoding.relation if isinstance(encoding, Encoding) else usual
    if not isinstance(given, Mapping) or "name" in given:
        return _check(given)
    absent = [key for key in encoding if key not in given] if isinstance(encoding, Mapping) else []
    for key in absent:
        if key not in _USUAL:
            raise ValueError(
                f"the relation of {key!r} is not known, only those of {', '.join(_USUAL)}; give "
                f"relation={{{key!r}: ...}}"
            )
    return {key: _check(part) for key, part in {**{key: _USUAL[key] for key in absent}, **given}.items()}


def _check(given: Any) -> GraphRelation:
    relation = given if isinstance(given, GraphRelation) else as_relation(given)
    if not isinstance(relation, GraphRelation):
        raise ValueError(f"{relation!r} cannot be made from graphs; attach over Hops(20), for example")
    if getattr(relation, "prefix_tokens", 0):
        raise ValueError(f"{relation!r} has prefix tokens, and GPSConv has none: its tokens are the nodes")
    return relation


def _trial_graphs(encoding: Encoding) -> GraphsOfCall:
    """Two nodes with an edge, of which everything is known, where the encoding is."""
    devices = {parameter.device for parameter in encoding.parameters() if not parameter.is_meta}
    like: Any = {"device": next(iter(devices), None)}
    relation = encoding.relation
    paths = [
        part
        for part in (relation.values() if isinstance(relation, Mapping) else [relation])
        if isinstance(part, EdgePaths)
    ]
    features = next((part.num_features for part in paths if part.num_features), None)
    known = torch.zeros(2, features or max([1, *(len(part.columns) for part in paths)]), **like)
    return GraphsOfCall(2, torch.tensor([[0, 1], [1, 0]], **like), edge_attr=known, pos=torch.zeros(2, 3, **like))


def _find(model: nn.Module) -> list[Any]:
    """Every GPSConv, or the reason why there is none that can have an encoding."""
    name = type(model).__name__
    convs: list[Any] = [module for module in model.modules() if isinstance(module, GPSConv)]
    if not convs:
        raise ValueError(f"{name} has no GPSConv inside; there is nothing to attach to")
    for conv in convs:
        kind, attention = type(conv).__name__, type(conv.attn).__name__
        if isinstance(conv, AttachedGPSConv) or hasattr(type(conv.attn), "host_class"):
            raise ValueError(
                f"{name} has an encoding attached inside; call detach on the module that `attach` was given"
            )
        if type(conv) is not GPSConv:
            raise ValueError(f"{name} has a {kind}, a subclass of GPSConv whose own ways are not known here")
        if type(conv.attn) is not nn.MultiheadAttention:
            raise ValueError(
                f"{name} has a GPSConv that attends by {attention}, which has no logits for an encoding; build it with "
                'attn_type="multihead"'
            )
        if not conv.attn._qkv_same_embed_dim:
            raise ValueError(f"{name} has a GPSConv whose keys or values have a size of their own; build it without")
    refuse_added_keys(name, [conv.attn for conv in convs])
    return convs
