"""iRPE against its formulas in plain loops, in the order of the authors' code: no library has it to compare with."""

from __future__ import annotations

import math

import pytest
import torch

import relbias as rb

DIM, HEADS = 24, 3


def g(x, alpha, beta, gamma):
    """The authors' piecewise function: rounded, bounded by beta, then cut to an integer."""
    if abs(x) <= alpha:
        return round(x)
    far = round(alpha + math.log(abs(x) / alpha) / math.log(gamma / alpha) * (beta - alpha))
    return int(math.copysign(min(far, beta), x))


def buckets(method, height, width, prefix, ratio):
    """The authors' buckets, (N, N), rows of tables of theirs; for "cross" two of them."""
    alpha, beta, gamma = ratio, 2 * ratio, 8 * ratio
    half = int(beta)

    def bucket(dy, dx):
        if method == "product":
            return [(g(dy, alpha, beta, gamma) + half) * (2 * half + 1) + g(dx, alpha, beta, gamma) + half]
        if method == "cross":
            return [g(dy, alpha, beta, gamma) + half, g(dx, alpha, beta, gamma) + half]
        distance = dy**2 + dx**2 if method == "quantization" else round(math.sqrt(dy**2 + dx**2))
        return [g(distance, alpha, beta, gamma) + half]

    n, last = prefix + height * width, (2 * half + 1) ** 2 if method == "product" else 2 * half + 1
    codes = torch.full((2 if method == "cross" else 1, n, n), last)
    for i in range(prefix, n):
        for j in range(prefix, n):
            (yi, xi), (yj, xj) = divmod(i - prefix, width), divmod(j - prefix, width)
            codes[:, i, j] = torch.tensor(bucket(yi - yj, xi - xj))
    return codes, last + (prefix > 0)


@pytest.mark.parametrize("method", ["euclidean", "quantization", "cross", "product"])
@pytest.mark.parametrize("prefix", [0, 1, 2])
@pytest.mark.parametrize("ratio", [1.9, 0.7, 5.0])
def test_codes_are_the_authors(method, prefix, ratio):
    relation = rb.relations.Grid(3, 13, prefix)
    encoding = rb.create_encoding("irpe", HEADS, 4, relation, method=method, rpe_on="qk", ratio=ratio)
    codes, rows = buckets(method, 3, 13, prefix, ratio)
    unused = int(2 * ratio) if method in ("euclidean", "quantization") else 0
    assert encoding.keys.shape == (len(codes), 1, rows - unused, 4)
    entries = encoding(relation()).entries
    assert len(entries) == 2 * len(codes)
    for theirs, forward, backward in zip(codes, entries[::2], entries[1::2], strict=True):
        assert torch.equal(forward.index.codes()[0, 0] + unused, theirs)
        assert torch.equal(backward.index.codes()[0, 0] + unused, theirs.T)


def test_published_sizes_and_some_buckets():
    relation = rb.relations.Grid(14, 14, prefix_tokens=1)
    assert rb.create_encoding("irpe", 6, 64, relation).keys.shape == (1, 1, 50, 64)
    assert rb.create_encoding("irpe", 6, 64, rb.relations.Grid(14, 14)).keys.shape == (1, 1, 49, 64)
    assert rb.create_encoding("irpe", 6, 64, relation, method="cross").keys.shape == (2, 1, 8, 64)
    (product,) = rb.create_encoding("irpe", 6, 64, relation)(relation()).entries
    codes = product.index.codes()[0, 0]
    patch = lambda y, x: 1 + 14 * y + x  # noqa: E731
    expected = {(0, 0): 0, (0, 1): -1, (1, 0): 1, (2, 0): 2, (3, 0): 2, (4, 0): 3, (13, 0): 3, (0, 13): -3, (0, 3): -2}
    for (yi, yj), row in expected.items():
        for (xi, xj), column in expected.items():
            assert codes[patch(yi, xi), patch(yj, xj)] == (row + 3) * 7 + column + 3
    assert codes[0].eq(49).all()
    assert codes[:, 0].eq(49).all()


@pytest.mark.parametrize("method", ["euclidean", "quantization", "cross", "product"])
@pytest.mark.parametrize(
    ("mode", "rpe_on"), [("contextual", "k"), ("contextual", "q"), ("contextual", "v"), ("contextual", "qkv")]
)
@pytest.mark.parametrize("shared_head", [True, False])
def test_contextual_attention(assert_same, copy_linear, method, mode, rpe_on, shared_head):
    compare(assert_same, copy_linear, method, mode, rpe_on, shared_head, prefix=1)


@pytest.mark.parametrize("method", ["euclidean", "cross", "product"])
@pytest.mark.parametrize("rpe_on", ["k", "q", "kq"])
@pytest.mark.parametrize("prefix", [0, 1])
def test_bias_attention(assert_same, copy_linear, method, rpe_on, prefix):
    compare(assert_same, copy_linear, method, "bias", rpe_on, False, prefix)


def compare(assert_same, copy_linear, method, mode, rpe_on, shared_head, prefix):
    """A whole layer: projections, q scaled first, the terms on keys, queries and values, softmax."""
    torch.manual_seed(0)
    height, width, dtype = 2, 5, torch.float64
    relation = rb.relations.Grid(height, width, prefix)
    encoding = rb.create_encoding(
        "irpe", HEADS, DIM // HEADS, relation, method=method, mode=mode, rpe_on=rpe_on, shared_head=shared_head
    )
    ours = rb.RelativeAttention(DIM, HEADS, encoding, relation).to(dtype)
    codes, rows = buckets(method, height, width, prefix, 1.9)
    unused = 3 if method in ("euclidean", "quantization") else 0
    qkv = torch.randn(3 * DIM, DIM, dtype=dtype, requires_grad=True)
    for layer, weight in zip((ours.q_proj, ours.k_proj, ours.v_proj), qkv.chunk(3), strict=True):
        copy_linear(layer, weight)
    copy_linear(ours.out_proj, torch.eye(DIM))
    heads, size = 1 if shared_head else HEADS, (DIM // HEADS,) if mode == "contextual" else ()
    tables = {letter: torch.randn(len(codes), heads, rows, *size, dtype=dtype, requires_grad=True) for letter in rpe_on}
    our_tables = {"k": encoding.keys, "q": encoding.queries, "v": encoding.values}
    with torch.no_grad():
        for letter, table in tables.items():
            our_tables[letter].copy_(table[:, :, unused:])
    x = torch.randn(2, relation().shape[0], DIM, dtype=dtype, requires_grad=True)

    q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (x @ qkv.T).chunk(3, dim=-1))
    scale = (DIM // HEADS) ** -0.5
    q = q * scale
    logits = q @ k.mT
    for t, code in enumerate(codes):
        if mode == "bias":
            logits = logits + (tables["k"][t][:, code] if "k" in rpe_on else 0)
            logits = logits + (tables["q"][t][:, code].mT if "q" in rpe_on else 0)
            continue
        if "k" in rpe_on:
            logits = logits + torch.einsum("bhid,hijd->bhij", q, tables["k"][t][:, code].expand(HEADS, -1, -1, -1))
        if "q" in rpe_on:
            on_queries = torch.einsum("bhjd,hjid->bhji", k * scale, tables["q"][t][:, code].expand(HEADS, -1, -1, -1))
            logits = logits + on_queries.mT
    weights = logits.softmax(dim=-1)
    out = weights @ v
    for t, code in enumerate(codes if "v" in rpe_on else ()):
        out = out + torch.einsum("bhij,hijd->bhid", weights, tables["v"][t][:, code].expand(HEADS, -1, -1, -1))
    expected = out.transpose(1, 2).flatten(2)

    maps = [lambda gradient: gradient, *[lambda gradient: gradient[:, :, unused:]] * len(rpe_on)]
    maps += [lambda gradient, part=part: gradient.chunk(3)[part] for part in range(3)]
    assert_same(
        (
            ours(x),
            [x, *(our_tables[letter] for letter in rpe_on), ours.q_proj.weight, ours.k_proj.weight, ours.v_proj.weight],
        ),
        (expected, [x, *tables.values(), qkv, qkv, qkv]),
        maps,
    )
