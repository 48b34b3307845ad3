"""The rotation of a host among the terms: every implementation turns by it, and turns of the same pairs add up."""

import pytest
import torch

import relbias as rb
from relbias.plugins.timm.host_rotation import HostTurn, with_host_turn
from relbias.terms import Rotation, Terms

TOKENS, SIZE = 15, 16


def angles(pairs, base):
    """(1, 1, N, P), proportional to the place."""
    places = torch.arange(TOKENS, dtype=torch.float64)
    return (places[:, None] * base ** -torch.arange(pairs, dtype=torch.float64))[None, None]


def host(interleaved, parts=1):
    """A turn of all pairs, made by plain rotations of the parts."""
    turned = angles(SIZE // 2, 1.5).chunk(parts, dim=-1)

    def apply(x):
        pieces = zip(x.chunk(parts, dim=-1), turned, strict=True)
        return torch.cat([Rotation(a, a, interleaved).rotate(piece, a) for piece, a in pieces], dim=-1)

    return HostTurn(apply, interleaved, parts)


@pytest.fixture
def qkv():
    return torch.randn(3, 1, 2, TOKENS, SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).unbind()


@pytest.mark.parametrize("implementation", ["folded", "blockwise"])
@pytest.mark.parametrize("names", [{"a": "shaw"}, {"a": "shaw", "b": "rope_axial"}, {"a": "transformer_xl"}])
@pytest.mark.parametrize("trained", [False, True])
def test_implementations_agree(qkv, implementation, names, trained):
    relation = rb.relations.Sequence() if "transformer_xl" in names.values() else rb.relations.Grid(3, 5)
    index = relation(TOKENS, TOKENS) if isinstance(relation, rb.relations.Sequence) else relation()
    terms = Terms()
    for name in names.values():
        encoding = rb.create_encoding(name, 2, SIZE, relation, dtype=torch.float64)
        terms = terms + encoding(index, x=torch.zeros(1, TOKENS, 32, dtype=torch.float64))
    terms = with_host_turn(terms, host(interleaved=True), TOKENS, SIZE)
    q, k, v = (part.requires_grad_(trained) for part in qkv)
    found, wanted = (rb.relative_attention(q, k, v, terms, implementation=i) for i in (implementation, "reference"))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)
    plain = rb.relative_attention(q, k, v, Terms.of(*(e for e in terms.entries if e.rotation is None)))
    assert (wanted - plain).abs().max() > 1e-2


@pytest.mark.parametrize("form", [{"interleaved": True}, {"interleaved": False}, {"interleaved": False, "parts": 2}])
@pytest.mark.parametrize("pairs", [3, SIZE // 2])
@pytest.mark.parametrize("interleaved", [False, True])
def test_the_product_depends_on_the_offset_alone(form, pairs, interleaved):
    own = angles(pairs, 1.3)
    terms = with_host_turn(Terms(rotation=Rotation(own, own, interleaved)), host(**form), TOKENS, SIZE)
    generator = torch.Generator().manual_seed(1)
    q, k = torch.randn(2, 1, 1, 1, SIZE, dtype=torch.float64, generator=generator).expand(2, 1, 1, TOKENS, SIZE)
    rotation = terms.rotation
    product = (rotation.rotate(q, rotation.q_angles) @ rotation.rotate(k, rotation.k_angles).mT)[0, 0]
    torch.testing.assert_close(product[1:, 1:], product[:-1, :-1], rtol=0, atol=1e-10)
    assert product[0].std() > 0.1
    alone = host(**form).apply
    assert (product - (alone(q) @ alone(k).mT)[0, 0]).abs().max() > 0.1


def test_the_factor_of_an_encoding_is_kept():
    x = torch.randn(1, 2, TOKENS, SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    own = Rotation(angles(SIZE // 2, 2.0), angles(SIZE // 2, 2.0), factor=1.5)
    both = with_host_turn(Terms(rotation=own), host(False), TOKENS, SIZE).rotation
    torch.testing.assert_close(both.rotate(x, both.q_angles), own.rotate(host(False).apply(x), own.q_angles))
