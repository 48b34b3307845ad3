"""Windows of a part of a text, each with the token that follows every one of its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from relbias.data.order import draws

IGNORED = -100
"""The target that counts in no loss, as in torch's cross entropy."""
_TOKENS = 4096  # at least as many in a batch of an evaluation


class Part:
    """The tokens of a part of a text.

    Args:
        documents: the tokens of its documents, (T,) integers each.
        packed: whether batches tell the documents apart; otherwise they are one text.

    Example:
        >>> part = Part([torch.tensor([1, 2]), torch.tensor([3, 4])], packed=True)
        >>> part.batch(4 - 1, [0])
        (tensor([[1, 2, 3]]), tensor([[   2, -100,    4]]), tensor([[0, 0, 1]]))
    """

    def __init__(self, documents: Sequence[Tensor], packed: bool = False) -> None:
        self.tokens = torch.cat([torch.empty(0, dtype=torch.int32), *documents])
        lengths = torch.tensor([len(document) for document in documents], dtype=torch.int64)
        numbers = torch.arange(len(documents), dtype=torch.int32)
        self.documents = numbers.repeat_interleave(lengths) if packed else None

    def __len__(self) -> int:
        return len(self.tokens)

    def batch(self, length: int, starts: Sequence[int], shift: int = 0) -> tuple[Tensor, ...]:
        """The windows that begin at `starts` + `shift`.

        Returns:
            tokens (B, length) and targets (B, length), int64; where documents are told apart, their numbers
            (B, length) int64 as well, and the target of a document's last token is `IGNORED`.
        """
        places = torch.tensor(starts)[:, None] + shift + torch.arange(length + 1)
        windows = self.tokens[places].long()
        tokens, targets = windows[:, :-1].contiguous(), windows[:, 1:].contiguous()
        if self.documents is None:
            return tokens, targets
        documents = self.documents[places].long()
        is_other = documents[:, 1:] != documents[:, :-1]
        return tokens, targets.masked_fill(is_other, IGNORED), documents[:, :-1].contiguous()


def training_starts(size: int, length: int) -> range:
    """Windows one after the other, at the end of which a window is left to be moved by :func:`moved`."""
    return range(0, length * max(1, size // length - 1), length)


def moved(part: Part, length: int, sampler: DistributedSampler, starts: Sequence[int]) -> tuple[Tensor, ...]:
    """A training batch: all windows of an epoch are moved by the same random number of tokens, below the length."""
    shifts = min(length, len(part) - training_starts(len(part), length)[-1] - length)
    return part.batch(length, starts, int(draws(sampler, torch.zeros(1, dtype=torch.int64), 1) * shifts))


def test_starts(size: int, length: int, longest: int) -> range:
    """Windows whose last quarters, one after the other, are the end of a part.

    Every token there is the target of a last quarter once, whatever the length of the windows, if the length is at
    most `longest`. The number of tokens is the largest multiple of a quarter of the longest window that leaves room for
    the longest window before its first.

    Args:
        size: T, tokens of the part, more than `length`.
        length: N, of the windows.
        longest: the length of the longest windows that are compared.

    Returns:
        The first tokens of the windows.

    Example:
        >>> for length in (8, 16):  # the last quarters begin at token 16 and end at token 39
        ...     starts = test_starts(40, length, longest=16)
        ...     print([start + length - length // 4 + 1 for start in starts][0], starts[-1] + length)
        16 39
        16 39
    """
    longest = max(length, longest)
    own, largest = quarter(length), quarter(longest)
    compared = max(0, size - 1 - longest) // largest * largest + largest
    count = max(1, min(compared, size - 1 - (length - own)) // own)
    last = size - 1 - length
    return range(last - (count - 1) * own, last + 1, own)


def quarter(length: int) -> int:
    """How many tokens the last quarter of a window has, at least 1."""
    return max(1, length // 4)


def in_order(part: Part, length: int, starts: range, batch_size: int, num_workers: int) -> DataLoader:
    """Batches of the windows that begin at `starts`, for evaluation; of `batch_size` windows or of 4,096 tokens."""
    dataset: Dataset = starts  # ty: ignore[invalid-assignment]
    return DataLoader(
        dataset=dataset,
        batch_size=max(batch_size, _TOKENS // length),
        num_workers=num_workers,
        collate_fn=partial(part.batch, length),
    )
