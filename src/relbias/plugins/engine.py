"""The attach engine: swaps a host's attention modules for ones with a relative encoding, and back.

A module is swapped by giving it another class, a subclass of its own, and the encoding as a new child. So everything
else about it stays what it was: parameters and their names, hooks, mode, device, and references to it held elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from relbias.encodings import Encoding, EncodingSpec
from relbias.plugins.sites import Site, build, is_conditional, places
from relbias.relations import Relation

_SETTINGS = "relbias_settings"


def attach(
    root: nn.Module,
    sites: Sequence[Site],
    encoding: EncodingSpec | Encoding,
    *,
    trial_index: Callable[[Encoding], Any],
    classes: Mapping[nn.Module, type[nn.Module]],
    settings: Mapping[str, Any],
    options: Mapping[str, Any],
    shared: bool = False,
    zero_start: bool = True,
    tokens: Site | None = None,
) -> None:
    """Give every site an encoding, one that adds nothing until it is trained unless told otherwise.

    Nothing is changed unless everything succeeds.

    Args:
        root: the module that holds the sites.
        sites: where.
        encoding: as in `create_encoding`; one encoding per site, but an encoding already built is shared by all. A
            conditional one, which is applied to tokens, goes to the site of tokens alone, also out of a mapping.
        trial_index: gives some index for an encoding, to see that it can be called before anything is changed. It
            is called with it, an input of zeros and the site's module.
        classes: of other modules that change their class, such as the root, the new ones, like `Site.swapped`.
        settings: the host's own, which its `attach` takes beside the encoding and its options.
        options: of the encoding.
        shared: whether sites that are alike (heads, head size, relation, group) share an encoding.
        zero_start: whether the encoding is made to add nothing; otherwise it stays as it starts from scratch.
        tokens: the module whose output a conditional encoding is applied to, with H D its size; None if the host has
            no such place.

    Raises:
        ValueError: there is an encoding already, or this one cannot be built, start at zero, or sit in attention.
    """
    check_free(root)
    placed: list[tuple[Site, Encoding]] = []
    for spec, where in places(encoding, sites, tokens):
        built = build(spec, where, options, shared)
        for site, candidate in zip(where, built, strict=True):
            check(candidate, site.relation, tokens=site is tokens)
            _start(candidate, zero_start)
            candidate.to(device=site.weight.device, dtype=site.weight.dtype)
            _try(candidate, site, trial_index(candidate))
        placed += zip(where, built, strict=True)
    if isinstance(encoding, Encoding):
        _start(encoding, zero_start)
        placed = [(site, encoding) for site, _ in placed]
    for site, new in placed:
        site.module.encoding = new.to(device=site.weight.device, dtype=site.weight.dtype).train(site.module.training)
        site.module.__class__ = site.swapped
    for module, swapped in classes.items():
        module.__class__ = swapped
    setattr(root, _SETTINGS, {"encoding": _describe(encoding), **settings, **options})


def detach(root: nn.Module) -> None:
    """Undo `attach`: the root is exactly what it was.

    Raises:
        ValueError: nothing is attached, or a module has become another class since.
    """
    holder = holder_of(root)
    changed = _changed(holder)
    for module in changed:
        if "host_class" not in vars(type(module)):
            raise ValueError(
                f"{_name(root)} has a {type(module).__name__} inside, which something else made of the class that "
                "attach gave, such as a parametrization; undo that first"
            )
    for module in changed:
        module.__class__ = type(module).host_class
        if "encoding" in module._modules:
            del module.encoding
    delattr(holder, _SETTINGS)


def check_free(root: nn.Module) -> None:
    """Refuse a module that has an encoding attached.

    Raises:
        ValueError: it has.
    """
    if hasattr(root, _SETTINGS):
        raise ValueError(f"{_name(root)} has an encoding attached; call detach(model) before another attach")


def settings(root: nn.Module) -> dict[str, Any]:
    """The arguments that give an equal model the same encodings: names, numbers and lists, nothing else.

    Raises:
        ValueError: nothing is attached, or what is attached cannot be said in plain values.
    """
    _check_attached(root)
    try:
        return json.loads(json.dumps(getattr(root, _SETTINGS)))
    except TypeError:
        raise ValueError(
            "the settings of an encoding given as an object or a function cannot be written down; "
            "attach one by name, with options, to have settings"
        ) from None


def update_settings(root: nn.Module, **changed: Any) -> None:
    """Note host settings that were changed after `attach`."""
    setattr(holder_of(root), _SETTINGS, getattr(root, _SETTINGS) | changed)


def encodings(root: nn.Module) -> list[Encoding]:
    """The encodings attached, each once.

    Raises:
        ValueError: nothing is attached.
    """
    found = [module.encoding for module in _changed(holder_of(root)) if "encoding" in module._modules]
    return list({id(encoding): encoding for encoding in found}.values())


def check(encoding: Encoding, relation: Relation | Mapping[str, Relation], *, tokens: bool = False) -> None:
    """Refuse an encoding that cannot sit in attention, or an already built one over another kind of relation.

    Of the relation given, the class and the number of prefix tokens count; the size is the encoding's own.

    Args:
        encoding: built.
        relation: of the host's tokens, by key for a sum of encodings that are over several.
        tokens: whether the place is not in attention but one where a conditional encoding is applied to tokens.

    Raises:
        ValueError: says what is wrong.
    """
    if hasattr(encoding, "embed") and not (tokens and is_conditional(type(encoding))):
        raise ValueError(f"{encoding.label} is applied at the input, not in attention, and cannot be attached")
    own = encoding.relation
    for key, given in (own if isinstance(own, Mapping) else {"": own}).items():
        needed = relation.get(key) if isinstance(relation, Mapping) else relation
        kinds = [(type(r), getattr(r, "prefix_tokens", 0)) for r in (given, needed)]
        if kinds[0] != kinds[1]:
            raise ValueError(f"the encoding was built over {given!r}, this model needs one like {needed!r}")


def _start(encoding: Encoding, at_zero: bool) -> None:
    """Make an encoding start, without a scale of its own, since the host has one."""
    if at_zero:
        encoding.zero_()
    else:
        encoding.drop_paper_scale()


def _try(encoding: Encoding, site: Site, index: Any) -> None:
    """Call an encoding with two items of zeros, for what it may refuse."""
    tokens = (next(iter(index.values())) if isinstance(index, Mapping) else index).shape[0]
    x = site.weight.new_zeros(2, tokens, site.num_heads * site.head_dim)
    with torch.no_grad():
        terms = encoding(index, x=x, attention=site.module)
    if "V" in terms.names and site.value_dim not in (None, site.head_dim):
        raise ValueError(
            f"{encoding.label} adds vectors of size {site.head_dim} to the values, which have size {site.value_dim} "
            f"in {type(site.module).__name__}; attach it without values"
        )


def _check_attached(root: nn.Module) -> None:
    if not hasattr(root, _SETTINGS):
        raise ValueError(f"{_name(root)} has no encoding attached; call attach(model, encoding) first")


def holder_of(root: nn.Module) -> nn.Module:
    """The module that keeps the settings: the root, or the one inside to which it passes on its attributes.

    A model under torch.compile is such a root.
    """
    _check_attached(root)
    kept = getattr(root, _SETTINGS)
    return next(module for module in root.modules() if vars(module).get(_SETTINGS) is kept)


def _changed(holder: nn.Module) -> list[Any]:
    """The modules that `attach` gave another class, but not those of a root inside, such as another plug-in's."""
    roots = [module for module in holder.modules() if module is not holder and _SETTINGS in vars(module)]
    others = {module for inner in roots for module in inner.modules()}
    return [module for module in holder.modules() if hasattr(type(module), "host_class") and module not in others]


def _name(root: nn.Module) -> str:
    return getattr(type(root), "host_class", type(root)).__name__


def _describe(encoding: Any) -> Any:
    """The encoding as its name, where it has one: a class by its name, a mapping key by key."""
    if isinstance(encoding, Mapping):
        return {key: _describe(value) for key, value in encoding.items()}
    if isinstance(encoding, type) and issubclass(encoding, Encoding):
        return getattr(encoding, "name", encoding)
    return encoding
