"""A transformer of music in voices, whose attention knows musical time."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from relbias.encodings import Encoding, EncodingSpec
from relbias.models.block import TransformerBlock
from relbias.models.music_relations import Notes, music_indices, music_relations
from relbias.models.named_relations import choose_relations
from relbias.models.token_embedding import TokenEmbedding
from relbias.relations.base import check_size


class MusicTransformer(nn.Module):
    """A decoder of notes: the logits of the next note, from the notes so far and how they stand to it in musical time.

    Music of V voices on a grid of steps is a token for each voice and step: the notes of a step voice by voice, then
    the next step. A sequence begins with the token before the first note of a bar (at the beginning of a piece one that
    says so), so that a query knows the voice, the step and the bar of the note that it predicts. The keys of a mapping
    of encodings are relations between that note and those so far:

    - "offset": in tokens, which is also what one encoding alone is over;
    - "time", "bar": in steps and in bars, negative for what was before;
    - "voice": the pair of the two voices; "phase": the pair of the two steps' places in their bars;
    - "time_by_voice": the time up to `max_steps` together with the pair of voices;
    - "interval": the key's pitch less that of the note which the query's voice leaves, up to `max_interval`.

    The relations "offset", "time" and "bar" have a code for every integer and take encodings such as t5, alibi, shaw or
    rope; the others take a table.

    Args:
        encoding: a name, a mapping, a callable or a built encoding; see `create_encoding`.
        num_tokens: the number of different tokens; the first 128 are MIDI pitches, others rests and the like.
        voices: V.
        steps_per_bar: S; 16 for bars of four quarters in sixteenths.
        metre: whether vectors of the next note's voice and place in the bar are added at the input, (V S, dim).
        max_steps: the largest time with codes of its own in "time_by_voice", in steps.
        max_interval: the largest "interval" with a code of its own, in semitones.
        max_length: the number of positions, for an encoding that has a vector for each (learned); others take any.
        dim: the size of a token's vector.
        depth: how many blocks.
        num_heads: H, a divisor of `dim`.
        mlp_ratio: the width of a block's network, as a multiple of `dim`.
        dropout: the probability of dropping an attention weight, and a number of each branch's output.
        device: where parameters lie.
        dtype: of the parameters.

    Attributes:
        embedding: the `TokenEmbedding`, whose matrix also gives the logits.
        metre: the table of those vectors, or None.
        blocks: the blocks.

    Raises:
        ValueError: sizes do not fit, or there is no such encoding or relation.

    Example:
        >>> model = MusicTransformer({"offset": "t5", "time_by_voice": "table"}, dim=32, depth=2)
        >>> model(torch.randint(128, (2, 64))).shape
        torch.Size([2, 64, 130])
    """

    def __init__(
        self,
        encoding: EncodingSpec | Encoding,
        *,
        num_tokens: int = 130,
        voices: int = 4,
        steps_per_bar: int = 16,
        metre: bool = True,
        max_steps: int = 32,
        max_interval: int = 24,
        max_length: int | None = None,
        dim: int = 96,
        depth: int = 3,
        num_heads: int = 4,
        mlp_ratio: float = 4.0,
        dropout: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        for name, size in (("voices", voices), ("steps_per_bar", steps_per_bar), ("depth", depth)):
            check_size(name, size, 1)
        self.num_tokens, self.voices, self.steps_per_bar = num_tokens, voices, steps_per_bar
        relations = music_relations(voices, steps_per_bar, max_steps, max_interval)
        relation: Any = choose_relations(encoding, relations, "notes")
        like: Any = {"device": device, "dtype": dtype}
        self.embedding = TokenEmbedding(encoding, num_tokens, dim, num_heads, relation, max_length, **like)
        block: Any = {"mlp_ratio": mlp_ratio, "dropout": dropout, **like}
        per_layer = self.embedding.per_layer
        self.blocks: Any = nn.ModuleList(
            TransformerBlock(dim, num_heads, per_layer, relation, **block) for _ in range(depth)
        )
        self.norm = nn.LayerNorm(dim, **like)
        self.metre: Any = nn.Embedding(voices * steps_per_bar, dim, **like) if metre else None
        self._reset_metre()

    def reset_parameters(self) -> None:
        """Give every parameter its start."""
        for layer in (self.embedding, *self.blocks, self.norm):
            layer.reset_parameters()
        self._reset_metre()

    def _reset_metre(self) -> None:
        if self.metre is not None:
            nn.init.normal_(self.metre.weight, std=0.02 * self.metre.embedding_dim**0.5)  # as large as those of tokens

    def forward(self, tokens: Tensor) -> Tensor:
        """The logits of the note after each token.

        Args:
            tokens: (B, N) integers, each in [0, num_tokens): the token before the first note of a bar, and the notes
                from there on. What lies right of the music changes nothing before it, so that padding needs no mask.

        Returns:
            (B, N, num_tokens).

        Raises:
            ValueError: shapes do not fit, or a token has no vector.
        """
        x = self.embedding(tokens)
        notes = Notes(tokens, self.voices, self.steps_per_bar)
        if self.metre is not None:
            places, _ = notes.places
            x = x + self.metre(places % (self.voices * self.steps_per_bar))
        index = music_indices(self.blocks[0].attention.encoding.relation, notes)
        for block in self.blocks:
            x = block(x, is_causal=True, index=index)
        return nn.functional.linear(self.norm(x), self.embedding.weight)
