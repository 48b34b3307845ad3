"""What can be said of the next note without attention."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from relbias.encodings import EncodingSpec
from relbias.models.token_embedding import check_tokens
from relbias.relations.base import check_size


class HoldAndBigram(nn.Module):
    """Of each voice: does it hold its note at this place in the beat, and if not, which note follows which.

    P(next = a) = s_vp for the note a that the voice has, and (1 - s_vp) softmax(B_v[a])[b] over all others b, with a
    probability s per voice and place in the beat and a row of B per voice and note. The measure of a model of music on
    a grid, where most notes are held.

    Args:
        encoding: "none", since every network of a task is given one and here is no attention.
        num_tokens: the number of different tokens.
        voices: V.
        steps_per_beat: places in a beat; 4 for quarters in sixteenths.

    Attributes:
        hold: the logits of s, (V, steps_per_beat).
        following: B, (V, num_tokens + 1, num_tokens); the last row is of no note, before the first step of a sequence.

    Raises:
        ValueError: another encoding, or a size is not positive.

    Example:
        >>> network = HoldAndBigram()
        >>> network(torch.randint(128, (2, 64))).exp().sum(-1).allclose(torch.ones(2, 64))
        True
    """

    def __init__(
        self, encoding: EncodingSpec = "none", *, num_tokens: int = 130, voices: int = 4, steps_per_beat: int = 4
    ) -> None:
        super().__init__()
        if encoding not in ("none", None):
            raise ValueError(f"HoldAndBigram has no attention, and the encoding is {encoding!r}; give encoding none")
        for name, size in (("num_tokens", num_tokens), ("voices", voices), ("steps_per_beat", steps_per_beat)):
            check_size(name, size, 1)
        self.num_tokens, self.voices, self.steps_per_beat = num_tokens, voices, steps_per_beat
        self.hold = nn.Parameter(torch.zeros(voices, steps_per_beat))
        self.following = nn.Parameter(torch.zeros(voices, num_tokens + 1, num_tokens))

    def forward(self, tokens: Tensor) -> Tensor:
        """The logarithms of the probabilities of the note after each token.

        Args:
            tokens: (B, N) integers, as in `MusicTransformer`.

        Returns:
            (B, N, num_tokens).

        Raises:
            ValueError: another shape, or a token out of range.
        """
        tokens = check_tokens(tokens, self.num_tokens)
        n, v = tokens.shape[1], self.voices
        places = torch.arange(n, device=tokens.device)
        voice, phase = places % v, places // v % self.steps_per_beat
        left = nn.functional.pad(tokens, (v - 1, 0), value=self.num_tokens)[:, :n]
        logits = self.following[voice, left]
        held = nn.functional.one_hot(left, self.num_tokens + 1)[..., :-1].bool()
        others = logits.masked_fill(held, -torch.inf).log_softmax(-1)
        stay, leave = (nn.functional.logsigmoid(sign * self.hold[voice, phase])[:, None] for sign in (1, -1))
        known = (left < self.num_tokens)[..., None]
        return torch.where(known, torch.where(held, stay, leave + others), others)
