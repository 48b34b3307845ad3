"""The memory of a language model that reads a text segment by segment."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from relbias.relations.base import check_size


@dataclass
class SegmentMemory:
    """What each block was given for the last tokens, for the next segment to attend to (Transformer-XL).

    As in https://arxiv.org/abs/1901.02860 the inputs of the blocks are kept and not their keys, so that keys are made
    by the present weights, and no gradient flows into an earlier segment. Updated in place by `LanguageModel`.

    Args:
        length: how many tokens are kept.
        seen: how many tokens there were.
        inputs: of each block (B, at most `length`, dim); empty before the first segment.

    Raises:
        ValueError: `length` is not positive.

    Example:
        >>> from relbias.models import LanguageModel
        >>> model, memory = LanguageModel("transformer_xl", num_tokens=65), SegmentMemory(length=32)
        >>> for segment in torch.randint(65, (2, 48)).split(16, dim=1):
        ...     logits = model(segment, memory=memory)
        >>> memory.seen, memory.inputs[0].shape
        (48, torch.Size([2, 32, 96]))
    """

    length: int
    seen: int = 0
    inputs: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_size("length", self.length, 1)

    def of(self, block: int) -> Tensor | None:
        """What a block, by its number, was given before: (B, at most `length`, dim), or None."""
        return self.inputs[block] if self.inputs else None

    def update(self, inputs: list[Tensor]) -> None:
        """Take in what the blocks were given for a segment, each (B, N, dim), and let go of what is too old."""
        joined = [
            x if self.of(block) is None else torch.cat((self.inputs[block], x), dim=1) for block, x in enumerate(inputs)
        ]
        # Copies, for a view of the last tokens would hold the others as well.
        self.inputs = [x.detach()[:, -self.length :].clone() for x in joined]
        self.seen += inputs[0].shape[1]

    def reset(self) -> None:
        """Forget everything, as before another text."""
        self.inputs, self.seen = [], 0
