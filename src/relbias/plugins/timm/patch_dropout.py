"""timm's patch dropout, which tells the attention of its call which patches it kept."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from relbias._extras import extra
from relbias.plugins.binding import bound
from relbias.plugins.timm.host import UnsupportedError

with extra("vision"):
    from timm.layers import PatchDropout
    from timm.layers.patch_dropout import PatchDropoutWithIndices, patch_dropout_forward


class TellingPatchDropout(PatchDropout):
    """PatchDropout in a model that has bound its grid."""

    host_class = PatchDropout

    def forward(self, x: Tensor) -> Tensor:
        """As in timm; x is (B, N, C)."""
        # timm's own does not give the places away, so this is what it calls.
        x, kept = patch_dropout_forward(x, self.prob, self.num_prefix_tokens, self.ordered, self.training)
        _keep(kept)
        return x


class TellingPatchDropoutWithIndices(PatchDropoutWithIndices):
    """The same for timm's PatchDropoutWithIndices."""

    host_class = PatchDropoutWithIndices

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """As in timm; x is (B, N, C)."""
        x, kept = super().forward(x)
        _keep(kept)
        return x, kept


_CLASSES = {cls.host_class: cls for cls in (TellingPatchDropout, TellingPatchDropoutWithIndices)}


def telling(root: Any) -> dict[nn.Module, type[nn.Module]]:
    """The class of a model's patch dropout while an encoding is attached, where it has one at `patch_drop`.

    Raises:
        UnsupportedError: the dropout may drop prefix tokens, as that of timm's distilled models does.
    """
    module = root.patch_drop
    if type(module) not in _CLASSES:
        return {}
    if module.num_prefix_tokens != root.num_prefix_tokens:
        raise UnsupportedError(
            f"its patch dropout spares {module.num_prefix_tokens} of its {root.num_prefix_tokens} prefix tokens; "
            "create it with patch_drop_rate=0"
        )
    return {module: _CLASSES[type(module)]}


def drops_patches(root: Any) -> bool:
    """Whether a call of a model with an encoding attached will drop patches."""
    module: Any = getattr(root, "patch_drop", None)
    return type(module) in _CLASSES.values() and module.training


def _keep(kept: Tensor | None) -> None:
    grid = bound()
    if kept is not None and grid is not None:
        grid.patches = kept if grid.patches is None else grid.patches.gather(1, kept)
