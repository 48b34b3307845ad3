"""Every encoding of sequences in a language model: what the tests of its properties run over."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.encodings.every import DIM, HEADS, VARIANTS, all_made

from relbias.models import LanguageModel
from relbias.relations import Sequence

NUM_TOKENS = 11
ALL = [
    made for at_input in (False, True) for made in all_made(at_input=at_input) if isinstance(made.relation, Sequence)
]


def every_encoding(without: tuple[str, ...] = (), variants: bool = False) -> Any:
    """Parametrises a test with `made`, each encoding once or also with other options."""
    some = ALL if variants else [made for made in ALL if made.name not in VARIANTS or is_plain(made)]
    return pytest.mark.parametrize("made", [made for made in some if made.name not in without], ids=str)


def is_plain(made: Any) -> bool:
    """Whether it has none of the options of a variant."""
    return not any(made.options.items() >= options.items() for options in VARIANTS[made.name])


def language_model(made: Any = None, **options: Any) -> LanguageModel:
    """In float64, in evaluation mode, with weights so large that they matter; the encoding is shared by its blocks."""
    encoding = "none" if made is None else made.encoding()
    torch.manual_seed(0)
    sizes = {"num_tokens": NUM_TOKENS, "dim": DIM, "depth": 2, "num_heads": HEADS}
    model = LanguageModel(encoding, **{**sizes, **options}).double().eval()
    for name, parameter in model.named_parameters():
        if name.startswith("blocks") and parameter.ndim == 2 and "encoding" not in name:
            torch.nn.init.normal_(parameter, std=0.4)
    return model


def random_tokens(batch: int = 2, length: int = 9, seed: int = 1) -> torch.Tensor:
    return torch.randint(NUM_TOKENS, (batch, length), generator=torch.Generator().manual_seed(seed))
