"""A vision transformer of timm with a relative encoding, for training from scratch and for fine-tuning."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from relbias._extras import extra
from relbias._nearest import nearest
from relbias.encodings import Encoding, EncodingSpec
from relbias.encodings.resize import Unit, check_unit
from relbias.models.pretrained import is_skipped
from relbias.plugins import timm as plugin
from relbias.plugins.timm.hosts import find
from relbias.relations.base import check_size

with extra("vision"):
    import timm
    from timm.data import resolve_model_data_config


class TimmModel(nn.Module):
    """A classifier of timm's in which every attention layer has an encoding of the offset between patches.

    Without trained weights the encoding starts as it does when trained from scratch; with them it is attached at zero,
    so that the network begins as exactly the trained one (see `relbias.plugins.timm.attach`).

    Args:
        encoding: as in `attach`. Encodings of the input (learned, sinusoidal) are refused: a model of timm has absolute
            positions of its own, which it keeps beside the encoding.
        name: of the model, one of `relbias list timm`, with a tag of weights where wanted.
        num_classes: how many classes the head has.
        pretrained: whether to fetch trained weights, unless built inside `skip_pretrained`. Those of a head with other
            classes are left out.
        zero_start: whether the encoding starts at zero; by default where `pretrained` is true.
        drop_positions: whether the model's absolute positions are left out, as in `attach`.
        freeze: whether only the encoding and the head are trained.
        options: further arguments of `timm.create_model`, such as img_size or drop_path_rate.

    Attributes:
        model: the model of timm.

    Raises:
        ValueError: there is no such model, an option is not one of its own, the weights cannot be fetched, or the model
            or the encoding is one that `attach` refuses.

    Example:
        >>> import torch
        >>> network = TimmModel("table", "vit_tiny_patch16_224", num_classes=10, options={"img_size": 32, "depth": 2})
        >>> network(torch.zeros(1, 3, 32, 32)).shape
        torch.Size([1, 10])
    """

    def __init__(
        self,
        encoding: EncodingSpec | Encoding,
        name: str,
        *,
        num_classes: int,
        pretrained: bool = False,
        zero_start: bool | None = None,
        drop_positions: bool = False,
        freeze: bool = False,
        options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        check_size("num_classes", num_classes, 1)
        self.model: Any = _create(name, pretrained and not is_skipped(), num_classes=num_classes, **options or {})
        if zero_start is None:
            zero_start = pretrained
        plugin.attach(self.model, encoding, drop_positions=drop_positions, zero_start=zero_start)
        if freeze:
            self._freeze()

    @property
    def data_config(self) -> dict[str, Any]:
        """How images are to be prepared, as `timm.data.create_transform` takes it.

        Returns:
            input_size (C, height, width), in pixels, interpolation, mean, std, crop_pct and crop_mode; those of the
            trained weights, but for an img_size given in `options`.
        """
        config = resolve_model_data_config(self.model)
        size = getattr(getattr(self.model, "patch_embed", None), "img_size", None)
        return config if size is None else {**config, "input_size": (config["input_size"][0], *size)}

    def prepare_for_size(self, size: int, unit: Unit = "image") -> None:
        """Take square images of another size, in place: positions of the model and tables are resized.

        Args:
            size: the side of the images, in pixels.
            unit: what an offset in a table keeps, its part of the "image" or its number of patches ("patch").

        Raises:
            ValueError: the model cannot take another size, or the unit is unknown.

        Example:
            >>> import torch
            >>> options = {"img_size": 32, "depth": 2}
            >>> network = TimmModel("table", "vit_tiny_patch16_224", num_classes=10, options=options)
            >>> network.prepare_for_size(64)
            >>> network(torch.zeros(1, 3, 64, 64)).shape
            torch.Size([1, 10])
        """
        check_size("size", size, 1)
        check_unit(unit)
        if not hasattr(self.model, "set_input_size"):
            raise ValueError(f"{type(self.model).__name__} takes images of one size: it has no set_input_size")
        patch_height, patch_width = self.model.patch_embed.patch_size
        if size % patch_height or size % patch_width:
            raise ValueError(f"size must be a multiple of the patch size {patch_height}x{patch_width}, got {size}")
        self.model.set_input_size(img_size=(size, size))
        if any(encoding.fixed_size for encoding in self._encodings()):
            root, host = find(self.model)
            plugin.resize(self.model, host.grid(root), unit)

    def forward(self, images: Tensor) -> Tensor:
        """The logits (B, num_classes) of images (B, C, height, width), normalised as `data_config` says."""
        return self.model(images)

    def _encodings(self) -> list[Encoding]:
        return [module.encoding for module in self.model.modules() if "encoding" in module._modules]

    def _freeze(self) -> None:
        heads = self.model.get_classifier()  # of a distilled model there are two
        trained = [*self._encodings(), *(heads if isinstance(heads, tuple | list) else [heads])]
        for parameter in self.model.parameters():
            parameter.requires_grad_(False)
        for part in trained:
            part.requires_grad_(True)


def _create(name: str, pretrained: bool, **options: Any) -> nn.Module:
    if not timm.is_model(name):
        raise ValueError(f"timm has no model {name!r}; {nearest(name.partition('.')[0], plugin.list_models())}")
    try:
        return timm.create_model(name, pretrained=pretrained, **options)
    except Exception as error:  # of timm, of torch or of the hub, whose errors have many classes
        cause = error
    try:
        timm.create_model(name, **options)
    except Exception as error:
        raise ValueError(f"timm cannot build {name} with {options}: {_line(error)}") from None
    raise ValueError(
        f"the trained weights of {name} cannot be loaded: {_line(cause)}; they are kept once they have been fetched "
        "with a connection, and pretrained=False does without"
    ) from None


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
