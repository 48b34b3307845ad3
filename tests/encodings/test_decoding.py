"""Step t of decoding equals the last row of a whole forward on t tokens; encodings that cannot do it say so."""

from dataclasses import replace

import pytest
import torch
from tests.encodings.every import all_made, every

import relbias as rb
from relbias.relations import Sequence

REFUSES = {"cope": "its gates count all tokens from a key to the query, which a cache does not leave in the input"}


def with_a_short_original_length(made):
    """So that decoding crosses it."""
    key = "original_max_position_embeddings"
    return replace(made, options=made.options | {key: 4}) if key in made.options else made


@every(Sequence, without=REFUSES)
@pytest.mark.parametrize("prompt", [1, 5])
@pytest.mark.parametrize("start", [None, 7])
def test_a_step_is_the_last_row(made, prompt, start):
    made = with_a_short_original_length(made)
    layer, x, cache = made.layer(implementation="auto"), made.input(9), rb.KVCache()
    positions = None if start is None else torch.arange(9) + start

    def call(tokens, **arguments):
        given = {} if positions is None else {"positions": positions[tokens]}
        return layer(x[:, tokens], is_causal=True, **given, **arguments)

    with torch.no_grad():
        first = call(slice(prompt), cache=cache)
        torch.testing.assert_close(first, call(slice(prompt)), rtol=0, atol=1e-12)
        for t in range(prompt + 1, 10):
            step = call(slice(t - 1, t), cache=cache)
            torch.testing.assert_close(step, call(slice(t))[:, -1:], rtol=0, atol=1e-12)
    assert cache.length == 9


@pytest.mark.parametrize("name", REFUSES)
def test_what_cannot_be_cached_is_refused(name):
    (made,) = [made for made in all_made() if made.name == name]
    layer, x, cache = made.layer(), made.input(3), rb.KVCache()
    with torch.no_grad():
        layer(x[:, :2], cache=cache, is_causal=True)
        with pytest.raises(ValueError, match=f"'{name}'.*cache") as caught:
            layer(x[:, 2:], cache=cache, is_causal=True)
    assert "\n" not in str(caught.value)
    assert cache.length == 2
