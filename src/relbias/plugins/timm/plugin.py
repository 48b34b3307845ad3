"""Attach relative encodings to timm's models, detach them, describe them and resize them."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from relbias.encodings import Encoding, EncodingSpec, create_encoding
from relbias.encodings.resize import Unit
from relbias.plugins import engine
from relbias.plugins.grids import as_grid, resize_encodings
from relbias.plugins.sites import wants_tokens
from relbias.plugins.timm import positions
from relbias.plugins.timm.host import Host, UnsupportedError
from relbias.plugins.timm.hosts import architectures, find, name_of, refusal
from relbias.plugins.timm.tables import check_not_taken
from relbias.plugins.timm.vision_transformer import FixedGridAttention
from relbias.relations import Grid

_MANY = 2**12


def attach(
    model: nn.Module,
    encoding: EncodingSpec | Encoding,
    *,
    grid: tuple[int, int] | None = None,
    shared: bool = False,
    drop_positions: bool = False,
    zero_start: bool = True,
    **options: Any,
) -> None:
    """Give every attention layer of a timm vision transformer a relative encoding, in place.

    With `zero_start` the output stays what it was until training moves the encoding: exactly in eval mode without
    gradients, on CPU in float32, else up to rounding. Parameters keep their names; new ones are at
    `blocks.0.attn.encoding.*`. The grid is that of each call's image; prefix tokens (class, distillation, registers)
    are the model's. Give the optimizer the new parameters: attach before building it.

    Args:
        model: of timm, one that `list_models` names, or a module with exactly one inside, like the model with
            features_only=True.
        encoding: a name, a mapping of names whose terms are summed, a callable that is given (num_heads, head_dim,
            relation), built once per layer; or an encoding already built, which is set to zero and shared by all
            layers. Over a `Grid`. "cpe", also in a mapping, is built once and applied to the tokens after the first
            block, where its authors found it best.
        grid: (height, width) of the tables, in patches; the model's own grid by default. Of a model whose layers have
            several grids it is the first, and of one that attends in windows that of a window.
        shared: whether layers that are alike (heads, head size, grid, for images of any size) share an encoding; each
            has its own by default.
        drop_positions: whether the model's own absolute positions are left out, which changes the output. Their
            parameters keep their values and places in the state dict, frozen, until `detach`.
        zero_start: whether the encoding starts at zero, as a trained model wants it; False for a model that is trained
            from scratch, whose encoding starts as anywhere else.
        **options: of the encoding.

    Raises:
        ValueError: the model is not supported (the message names the nearest that is), has an encoding already, has
            no absolute positions to drop, or the encoding does not suit it. The model is then as it was.

    Example:
        >>> import timm
        >>> model = timm.create_model("vit_tiny_patch16_224", img_size=64, depth=1)
        >>> attach(model, encoding="table")
        >>> model.blocks[0].attn.encoding
        Table(num_heads=3, head_dim=64, relation=Grid(height=4, width=4, prefix_tokens=1, max_distance=None))
    """
    root, host = find(model)
    engine.check_free(root)
    size, sites, classes = _described(root, host, grid)
    dropped = positions.find(root, host.positions) if drop_positions else []
    if drop_positions and not dropped:
        raise ValueError(f"{name_of(root)} has no absolute positions to drop; attach without drop_positions")
    choices = {"shared": shared, "drop_positions": drop_positions, "zero_start": zero_start}
    chosen = {name: choice for name, choice in choices.items() if choice != (name == "zero_start")}
    tokens = _tokens(root, host, size) if wants_tokens(encoding) else None
    if tokens is None and wants_tokens(encoding):
        raise ValueError(
            f"'cpe' is applied to the tokens after the first block, and has no place in {name_of(root)}; it has one in "
            "ViT, DeiT, BEiT, EVA, ViTamin and the relative position ViTs"
        )
    engine.attach(
        root,
        sites,
        encoding,
        trial_index=lambda candidate: candidate.grid_index(1, 1),
        classes=classes,
        settings={"grid": size} | chosen,
        options=options,
        shared=shared,
        zero_start=zero_start,
        tokens=tokens,
    )
    positions.drop(root, dropped)


def detach(model: nn.Module) -> None:
    """Undo `attach`, in place: the model is what it was, without the encodings and what they learned.

    Args:
        model: given to `attach` before.

    Raises:
        ValueError: nothing is attached, or the model's own tables are in the encodings, since `take_bias_tables`.
    """
    root, _ = find(model)
    check_not_taken(root)
    engine.detach(root)
    positions.restore(root)


def settings(model: nn.Module) -> dict[str, Any]:
    """What `attach` needs to give an equal model the same encodings: `attach(fresh, **settings)`, then load weights.

    Args:
        model: given to `attach` before.

    Returns:
        A dict of plain values, to be kept beside the checkpoint, as JSON for example.

    Raises:
        ValueError: nothing is attached, or the encoding was given as an object or a function.

    Example:
        >>> import timm
        >>> model = timm.create_model("vit_tiny_patch16_224", img_size=64, depth=1)
        >>> attach(model, encoding="shaw", max_distance=3)
        >>> settings(model)
        {'encoding': 'shaw', 'grid': [4, 4], 'max_distance': 3}
    """
    return engine.settings(find(model)[0])


def resize(model: nn.Module, grid: tuple[int, int], unit: Unit = "patch") -> None:
    """Give the attached tables the offsets of another grid, in place. A smaller image needs no resize.

    With "patch" an offset of d patches keeps its numbers and those beyond the old grid start as the farthest one in
    their direction; with "image" an offset keeps its numbers where it is the same part of the image, read bicubically
    between offsets. Codes of prefix tokens are kept. Tables are new parameters: build the optimizer afterwards.

    Args:
        model: given to `attach` before.
        grid: (height, width) of the new grid, in patches; as in `attach` the first one, or the window.
        unit: "patch", for more or fewer patches of the same scale, or "image", for the same images cut finer.

    Raises:
        ValueError: nothing is attached, the encoding has no tables, or an argument is wrong.

    Example:
        >>> import timm, torch
        >>> model = timm.create_model("vit_tiny_patch16_224", img_size=64, depth=1, dynamic_img_size=True)
        >>> attach(model, encoding="table")
        >>> resize(model, (6, 6))
        >>> model(torch.zeros(1, 3, 96, 96)).shape
        torch.Size([1, 1000])
    """
    root, host = find(model)
    engine.encodings(root)  # raises where nothing is attached
    size, sites, _ = _described(root, host, grid)
    grids: dict[Any, tuple[int, int]] = {}
    for site in sites:  # layers that share one given as an object may have different grids: it takes the largest
        attached = site.module._modules.get("encoding")
        relation: Any = site.relation
        if attached is not None:
            height, width = grids.get(attached, (1, 1))
            grids[attached] = max(height, relation.height), max(width, relation.width)
    for attached in engine.encodings(root):
        grids.setdefault(attached, size)  # that of tokens is at no site
    resize_encodings(grids, unit)
    engine.update_settings(root, grid=size)


def attn_layer(
    encoding: EncodingSpec | Encoding, *, grid: tuple[int, int], prefix_tokens: int = 1, **options: Any
) -> type[FixedGridAttention]:
    """An attention class for `timm.create_model(..., attn_layer=...)`, to train with an encoding from scratch.

    Such a model does not tell its layers the grid of a call, so every image must have the one given here. For images
    of several sizes, and for trained weights, use `attach`.

    Args:
        encoding: as in `attach`; it starts as it does when trained from scratch, not at zero.
        grid: (height, width), in patches.
        prefix_tokens: P, how many class and register tokens the model has.
        **options: of the encoding.

    Raises:
        ValueError: the grid is wrong; when the model is created, if the encoding does not suit it.

    Example:
        >>> import timm
        >>> layer = attn_layer("rope_axial", grid=(4, 4), prefix_tokens=1)
        >>> timm.create_model("vit_tiny_patch16_224", img_size=64, depth=1, attn_layer=layer).blocks[0].attn.encoding
        AxialRoPE(num_heads=3, head_dim=64, relation=Grid(height=4, width=4, prefix_tokens=1, max_distance=None))
    """
    relation = Grid(*as_grid(grid), prefix_tokens=prefix_tokens)

    class Layer(FixedGridAttention):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            built = create_encoding(encoding, self.num_heads, self.head_dim, relation, **options)
            engine.check(built, relation)
            built.drop_paper_scale()  # the host has a scale
            self.encoding = built.to(device=self.qkv.weight.device, dtype=self.qkv.weight.dtype)
            self.__class__ = FixedGridAttention  # ty: ignore[invalid-assignment]  # a class that pickle finds

    return Layer


def list_models(pattern: str = "*") -> list[str]:
    """The names of timm's architectures that `attach` supports.

    Args:
        pattern: which ones, with the wildcards * and ?.

    Example:
        >>> list_models("deit_tiny_*")
        ['deit_tiny_distilled_patch16_224', 'deit_tiny_patch16_224']
    """
    return fnmatch.filter(architectures(), pattern)


def _described(
    root: nn.Module, host: Host, grid: tuple[int, int] | None
) -> tuple[tuple[int, int], list[engine.Site], Mapping[nn.Module, type[nn.Module]]]:
    """The grid, the model's own by default, with the sites for it and the other modules that change their class."""
    try:
        size = as_grid(host.grid(root) if grid is None else grid)
        # Of so many patches no two layers have the same grid by chance, as a window and a small map may have.
        fine = host.sites(root, (size[0] * _MANY, size[1] * _MANY))
        sites = [replace(site, group=at.relation) for site, at in zip(host.sites(root, size), fine, strict=True)]
        return size, sites, host.classes(root)
    except UnsupportedError as error:
        raise refusal(root, str(error)) from None


def _tokens(root: nn.Module, host: Host, grid: tuple[int, int]) -> engine.Site | None:
    try:
        return None if host.tokens is None else host.tokens(root, grid)
    except UnsupportedError as error:
        raise refusal(root, str(error)) from None
