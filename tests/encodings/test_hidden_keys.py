"""What a mask hides from a query cannot reach it: not by x, positions or codes, nor by a gradient, to the bit."""

import pytest
import torch
from tests.encodings.every import HEADS, call, every

import relbias as rb
from relbias.relations import Sequence

TOKENS = 9
MASKS = {
    "causal": lambda n: {"is_causal": True},
    "window": lambda n: {"window": (2, 1)},
    "documents": lambda n: {"document_ids": (torch.arange(n) // 3).expand(2, n)},
}


def hidden_from(mask, i, n):
    """The keys that query i does not see, counted in loops, bool (n,)."""
    seen = {
        "causal": [j <= i for j in range(n)],
        "window": [-2 <= j - i <= 1 for j in range(n)],
        "documents": [j // 3 == i // 3 for j in range(n)],
    }[mask]
    return ~torch.tensor(seen)


# flex has no backward pass on CPU.
@pytest.fixture(params=[name for name in rb.list_implementations() if name != "flex"])
def implementation(request, monkeypatch):
    """Its name; where it works block by block, there are a few blocks."""
    monkeypatch.setattr("relbias.attention.blockwise._LOGITS_PER_BLOCK", 3 * TOKENS)
    monkeypatch.setattr("relbias.attention.blocks.plain._LOGITS_PER_BLOCK", 3 * 2 * HEADS * TOKENS)
    return request.param


@every()
@pytest.mark.parametrize("mask", MASKS)
def test_hidden_tokens_do_not_reach_a_query(made, mask, implementation):
    n = made.tokens(TOKENS)
    layer, x, values = made.layer(implementation=implementation), made.input(n), made.values(2, n)
    i = n // 2
    hidden = hidden_from(mask, i, n)
    arguments = MASKS[mask](n)
    changed = torch.where(hidden[:, None], 3 * torch.randn(x.shape, dtype=x.dtype), x)
    others = values
    if values is not None:
        concerned = (hidden[:, None] | hidden)[made.prefix :, made.prefix :]
        others = tuple(
            old if old.ndim < 3 else torch.where(concerned.view(*concerned.shape, *[1] * (old.ndim - 3)), new, old)
            for old, new in zip(values, made.values(2, n), strict=True)
        )
    rows = slice(i + 1) if mask == "causal" else slice(i, i + 1)
    # torch's attention has another way to compute a mask that is trained.
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            out = call(layer, x.requires_grad_(grad), index=made.index(n, values), **arguments)
            if out is None:
                return
            after = call(layer, changed, index=made.index(n, others), **arguments)
        assert torch.equal(after[:, rows], out[:, rows])
        assert not torch.equal(after[:, hidden], out[:, hidden])
    (gradient,) = torch.autograd.grad(out[:, rows].square().sum(), x)
    assert not gradient[:, hidden].any()
    assert gradient[:, ~hidden].any(dim=-1).all()


@every(Sequence)
def test_later_positions_do_not_reach_a_query(made, implementation):
    layer, x, positions = made.layer(implementation=implementation), made.input(TOKENS), torch.arange(TOKENS) * 3
    i = 4
    others = torch.cat((positions[: i + 1], positions[i + 1 :].flip(0)))
    with torch.no_grad():
        out = call(layer, x, positions=positions, is_causal=True)
        if out is not None:
            after = call(layer, x, positions=others, is_causal=True)
            assert torch.equal(after[:, : i + 1], out[:, : i + 1])
