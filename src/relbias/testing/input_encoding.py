"""The shared tests of encodings that are applied at the input."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import relbias as rb
from relbias.relations import Index
from relbias.testing.cases import BATCH, HEAD_DIM, HEADS
from relbias.testing.common import CommonTestCase


class InputEncodingTestCase(CommonTestCase):
    """The tests that every encoding with `embed` passes; a subclass sets `encoding`, and `vectors` or `embedded`."""

    def vectors(self, encoding: Any, index: Index) -> Tensor:
        """What is added to the tokens by the paper's formula, written without the library: (N, H D)."""
        raise TypeError(f"{type(self).__name__} must define vectors, the dense reference")

    def embedded(self, encoding: Any, x: Tensor, index: Index) -> Tensor:
        """The tokens x, (B, N, H D), with the encoding applied by the paper's formula: (B, N, H D)."""
        return x + self.vectors(encoding, index)

    def test_embed_equals_the_formula(self) -> None:
        encoding = self.make()
        for n in (9, 1):
            index = self.make_index(n, n)
            x = torch.randn(BATCH, index.shape[0], HEADS * HEAD_DIM, dtype=torch.float64, requires_grad=True)
            wanted = [x, *encoding.parameters()]
            out, expected = encoding.embed(x, index), self.embedded(encoding, x, index)
            grad = torch.randn_like(out)
            torch.testing.assert_close(out, expected, rtol=0, atol=1e-9)
            for mine, theirs in zip(
                torch.autograd.grad(out, wanted, grad), torch.autograd.grad(expected, wanted, grad), strict=True
            ):
                torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-9)

    def test_gives_the_layers_no_terms(self) -> None:
        self.assertEqual(self.make()(self.make_index(9, 9)).names, ())

    def test_attention_refuses_it(self) -> None:
        with self.assertRaisesRegex(ValueError, "applied at the input"):
            rb.RelativeAttention(HEADS * HEAD_DIM, HEADS, self.make(), self.relation)

    def test_refuses_tokens_of_another_size(self) -> None:
        with self.assertRaisesRegex(ValueError, f"{HEADS * HEAD_DIM}"):
            self.make().embed(torch.zeros(1, 9, HEADS * HEAD_DIM + 1))

    def test_zero_adds_nothing_and_can_learn(self) -> None:
        encoding = self.make()
        encoding.zero_()
        n, _ = self.make_index(9, 9).shape
        x = torch.randn(BATCH, n, HEADS * HEAD_DIM, dtype=torch.float64)
        out = encoding.embed(x, self.make_index(9, 9))
        self.assertTrue(torch.equal(out, x))
        grads = torch.autograd.grad(out.square().sum(), list(encoding.parameters()))
        self.assertTrue(any(bool(g.any()) for g in grads))

    def test_keeps_the_dtype_of_the_tokens(self) -> None:
        n, _ = self.make_index(9, 9).shape
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            x = torch.zeros(1, n, HEADS * HEAD_DIM, dtype=dtype)
            out = self.make(torch.float32).embed(x, self.make_index(9, 9))
            self.assertEqual(out.dtype, dtype)

    def test_embeds_on_the_meta_device(self) -> None:
        encoding = self.make(torch.float32).to("meta")
        n, _ = self.make_index(9, 9).shape
        out = encoding.embed(torch.zeros(BATCH, n, HEADS * HEAD_DIM, device="meta"), self.make_index(9, 9))
        self.assertEqual(out.shape, (BATCH, n, HEADS * HEAD_DIM))

    def test_compiles_without_graph_breaks(self) -> None:
        encoding, index = self.make(torch.float32), self.make_index(9, 9)
        x = torch.randn(BATCH, index.shape[0], HEADS * HEAD_DIM)
        torch._dynamo.reset()

        class Embed(nn.Module):
            def __init__(self, encoding: Any) -> None:
                super().__init__()
                self.encoding = encoding

            def forward(self, x: Tensor) -> Tensor:
                return self.encoding.embed(x, index)

        compiled = torch.compile(Embed(encoding), fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(x), encoding.embed(x, index))
        exported = torch.export.export(Embed(encoding), (x,))
        torch.testing.assert_close(exported.module()(x), encoding.embed(x, index))
