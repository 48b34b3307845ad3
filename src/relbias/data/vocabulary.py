"""From text to tokens and back: characters or bytes."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

UNKNOWN = "\N{REPLACEMENT CHARACTER}"


class Characters:
    """A token for each character of a text, in the order of their code points, after token 0 for any other.

    Args:
        texts: those whose characters have tokens, such as the training part.

    Example:
        >>> vocabulary = Characters(["hello"])
        >>> len(vocabulary), vocabulary.encode("hole?").tolist(), vocabulary.decode([2, 1, 0])
        (5, [2, 4, 3, 1, 0], 'he�')
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self.characters = sorted(set().union(*texts))
        self._points = np.array([ord(character) for character in self.characters], dtype=np.uint32)

    def __len__(self) -> int:
        return len(self.characters) + 1

    def encode(self, text: str) -> Tensor:
        """The tokens of a text, (T,) int32."""
        points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        places = np.searchsorted(self._points, points)
        known = np.append(self._points, 0)[places] == points
        known &= places < len(self._points)
        return torch.from_numpy(np.where(known, places + 1, 0).astype(np.int32))

    def decode(self, tokens: Sequence[int] | Tensor) -> str:
        """The text of tokens, with U+FFFD for the unknown one."""
        letters = (UNKNOWN, *self.characters)
        return "".join(letters[token] for token in torch.as_tensor(tokens).tolist())


class Bytes:
    """A token for each byte of a text in UTF-8, 0 to 255.

    Example:
        >>> vocabulary = Bytes()
        >>> len(vocabulary), vocabulary.encode("né").tolist(), vocabulary.decode([110, 195, 169])
        (256, [110, 195, 169], 'né')
    """

    def __len__(self) -> int:
        return 256

    def encode(self, text: str) -> Tensor:
        """The tokens of a text, (T,) int32."""
        return torch.from_numpy(np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int32))

    def decode(self, tokens: Sequence[int] | Tensor) -> str:
        """The text of tokens, with U+FFFD where they are no UTF-8."""
        return bytes(torch.as_tensor(tokens).tolist()).decode(errors="replace")
