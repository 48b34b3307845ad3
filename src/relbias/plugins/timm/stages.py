"""Models that are stages over feature maps, of which some attend: where those are, and their grids.

With features_only=True timm takes such a model apart and keeps the stages alone, so that there are two roots.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def stages_of(root: Any) -> Iterator[tuple[int, Any]]:
    """The stages of a model and by how much the feature map of each is smaller than the image.

    Args:
        root: with `stages` and `feature_info`, or what timm leaves of such a model for its features.
    """
    info = getattr(root.feature_info, "info", root.feature_info)
    # A stage's features are taken from it, or of the last from what follows it; the stem has its own.
    reductions = [entry["reduction"] for entry in info if not entry["module"].startswith("stem")]
    for name, module in root.named_children():
        if name == "stages":
            yield from zip(reductions, module, strict=True)
        elif name.startswith("stages_"):
            yield reductions[int(name.removeprefix("stages_"))], module


def image_size(root: Any) -> tuple[int, int]:
    """The (height, width) in pixels of the images that a model was trained for, which it takes from its architecture.

    Raises:
        ValueError: it was built without.
    """
    config = getattr(root, "pretrained_cfg", None) or {}
    if "input_size" not in config:
        raise ValueError(
            f"{type(root).__name__} does not know the size of its images; give attach grid=(height, width)"
        )
    return config["input_size"][-2:]
