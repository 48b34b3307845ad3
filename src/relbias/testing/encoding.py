"""The shared tests of encodings that give terms."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import Any, ClassVar
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention

import relbias as rb
from relbias.attention.functional import IMPLEMENTATIONS
from relbias.relations import Index, Relation
from relbias.testing.cases import BATCH, CASES, HEAD_DIM, HEADS, Case
from relbias.testing.common import CommonTestCase

NOT_COMPILED = [name for name, implementation in IMPLEMENTATIONS.items() if not implementation.compiles]


class EncodingTestCase(CommonTestCase):
    """The tests that every encoding passes; subclass it in a file of its own.

    A subclass sets `encoding` and, where they are not the defaults, `options`, `relation`, `refused` and `zero_start`,
    and defines `logits`.

    Attributes:
        encoding: the class under test.
        options: with which it is built.
        relation: over which it is built.
        refused: implementations that cannot compute its terms, and part of the reason that they give.
        zero_start: whether `zero_` can make it add nothing.

    Example:
        >>> class TestALiBi(EncodingTestCase):
        ...     encoding = rb.encodings.ALiBi
        ...     def logits(self, encoding, q, k, scale, index):
        ...         ...  # the paper's formula, in plain loops
    """

    refused: ClassVar[Mapping[str, str]] = {}
    zero_start: ClassVar[bool] = True

    def logits(self, encoding: rb.Encoding, q: Tensor, k: Tensor, scale: float, index: Index) -> Tensor:
        """The logits by the paper's formula, written as plainly as possible and without the library.

        Args:
            encoding: the one under test.
            q: (B, H, N, D) float64.
            k: (B, H, M, D) float64.
            scale: c.
            index: of the N queries, which are the last of the M keys' positions.

        Returns:
            (B, H, N, M), without masks.
        """
        raise TypeError(f"{type(self).__name__} must define logits, the dense reference")

    def values(self, encoding: rb.Encoding, weights: Tensor, index: Index) -> Tensor:
        """What is added to the output for weights, (B, H, N, M), by the paper's formula: (B, H, N, D)."""
        return weights.new_zeros(*weights.shape[:3], HEAD_DIM)

    def context(self, encoding: rb.Encoding, index: Index) -> dict[str, Any]:
        """What the encoding is called with beside the index: x and attention for one that needs them, else nothing.

        Equal at each call, but for the dtype, which is the encoding's.
        """
        return {}

    def terms(self, encoding: rb.Encoding, index: Index) -> rb.Terms:
        """The terms of one call."""
        return encoding(index, **self.context(encoding, index))

    def run_case(
        self, case: Case, implementation: str, encoding: rb.Encoding, index: Index, inputs: list[Tensor]
    ) -> list[Tensor]:
        """The output and the gradients of q, k, v and every parameter, in float64."""
        q, k, v, grad = (x.to(case.dtype) for x in inputs)
        q, k, v = (x.requires_grad_() for x in (q, k, v))
        precision = torch.autocast("cpu", torch.bfloat16) if case.autocast else nullcontext()
        with precision:
            arguments = case.arguments(*index.shape)
            out = rb.relative_attention(
                q, k, v, self.terms(encoding, index), implementation=implementation, **arguments
            )
        wanted = [q, k, v, *encoding.parameters()]
        grads = torch.autograd.grad(out, wanted, grad.to(out.dtype), allow_unused=True)
        return [
            x.detach().double()
            for x in (out, *(torch.zeros_like(w) if g is None else g for g, w in zip(grads, wanted, strict=True)))
        ]

    def cases(self) -> Iterator[tuple[Case, Index, list[Tensor]]]:
        """Every case that the relation can form, with an index and inputs."""
        for case in CASES:
            index = self.make_index(case.n, case.m)
            yield case, index, case.inputs(*index.shape)

    def test_equals_the_formula(self) -> None:
        encoding = self.make()
        for n, m in ((6, 6), (4, 7), (1, 5)):
            index = self.make_index(n, m)
            q, k, v, grad = (x.requires_grad_() for x in Case("formula").inputs(*index.shape))
            wanted = [q, k, v, *encoding.parameters()]
            out = rb.relative_attention(q, k, v, self.terms(encoding, index), scale=0.3, implementation="reference")
            logits = self.logits(encoding, q, k, 0.3, index)
            weights = logits.softmax(dim=-1)
            expected = weights @ v + self.values(encoding, weights, index)
            with self.subTest(n=n, m=m):
                torch.testing.assert_close(out, expected, rtol=0, atol=1e-9)
                # A parameter that takes no part, such as a learned scale, takes none in the formula.
                for mine, theirs in zip(
                    torch.autograd.grad(out, wanted, grad, allow_unused=True, materialize_grads=True),
                    torch.autograd.grad(expected, wanted, grad, allow_unused=True, materialize_grads=True),
                    strict=True,
                ):
                    torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-9)

    def test_implementations_equal_the_reference(self) -> None:
        for case, index, inputs in self.cases():
            low = case.low_precision
            encoding = self.make(dtype=torch.float32 if case.autocast else case.dtype)
            exact = self.run_case(Case(case.name), "reference", copy.deepcopy(encoding).double(), index, inputs)
            for name in NOT_COMPILED:
                if name in self.refused or (name == "reference" and low is None):
                    continue
                # A few blocks, the last one smaller, wherever there is more than one query.
                few = mock.patch("relbias.attention.blockwise._LOGITS_PER_BLOCK", 3 * index.shape[1])
                plain = "relbias.attention.blocks.plain._LOGITS_PER_BLOCK"
                also = mock.patch(plain, 3 * BATCH * HEADS * index.shape[1])
                with self.subTest(case=case.name, implementation=name), few, also:
                    got = self.run_case(case, name, encoding, index, inputs)
                    for x in got:
                        self.assertTrue(bool(x.isfinite().all()), "not finite")
                    if low is None:
                        for mine, theirs in zip(got, exact, strict=True):
                            torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-9, check_dtype=False)
                        continue
                    rounded = Case(case.name, dtype=low, kv_heads=case.kv_heads)
                    standard = self.run_case(rounded, "reference", encoding, index, inputs)
                    for mine, reference, best in zip(got, standard, exact, strict=True):
                        rounding = 1e-5 * max(1.0, float(best.abs().max()))  # of sums in float32, in another order
                        error, bound = (mine - best).abs().max(), 2 * (reference - best).abs().max() + rounding
                        self.assertLessEqual(float(error), float(bound))

    def test_refusals_are_the_expected_ones(self) -> None:
        encoding = self.make()
        for case, index, inputs in self.cases():
            q, k, v, _ = inputs
            arguments = case.arguments(*index.shape)
            for name in NOT_COMPILED:
                reason = IMPLEMENTATIONS[name].supports(q, k, v, self.terms(encoding, index), **arguments)
                with self.subTest(case=case.name, implementation=name):
                    if name not in self.refused:
                        self.assertIsNone(reason)
                        continue
                    self.assertIn(self.refused[name], reason or "")
                    with self.assertRaisesRegex(ValueError, self.refused[name]):
                        rb.relative_attention(q, k, v, self.terms(encoding, index), implementation=name, **arguments)

    def test_flex_infers_as_the_reference(self) -> None:
        # Uncompiled, which computes the same on CPU; there it has no backward pass.
        uncompiled = (
            mock.patch("relbias.attention.flex._kernel", return_value=flex_attention),
            mock.patch("torch.nn.attention.flex_attention._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True),
        )
        encoding = self.make(torch.float32)
        for case in (Case("causal"), Case("padding", n=5, m=11)):
            index = self.make_index(case.n, case.m)
            q, k, v, _ = (x.float() for x in case.inputs(*index.shape))
            arguments = case.arguments(*index.shape)
            with self.subTest(case=case.name), torch.no_grad(), uncompiled[0], uncompiled[1]:
                terms = self.terms(encoding, index)
                if "V" in terms.names:
                    with self.assertRaisesRegex(ValueError, "V acts on the values"):
                        rb.relative_attention(q, k, v, terms, implementation="flex", **arguments)
                    continue
                out = rb.relative_attention(q, k, v, terms, implementation="flex", **arguments)
                expected = rb.relative_attention(q, k, v, terms, implementation="reference", **arguments)
                torch.testing.assert_close(out, expected, rtol=0, atol=2e-5)

    def test_half_precision_has_the_angles_and_biases_of_float32(self) -> None:
        for dtype in (torch.bfloat16, torch.float16):
            full, half = self.make(torch.float32), self.make(torch.float32)
            # Parameters that half precision holds exactly: what is tested is what is made of them.
            full.load_state_dict({name: value.to(dtype).float() for name, value in full.state_dict().items()})
            half.load_state_dict(full.state_dict())
            index = self.make_index(9, 9)
            terms, lower = self.terms(full, index), self.terms(half.to(dtype), index)
            if terms.rotation is not None and lower.rotation is not None:
                self.assertTrue(torch.equal(terms.rotation.q_angles, lower.rotation.q_angles))
                self.assertTrue(torch.equal(terms.rotation.k_angles, lower.rotation.k_angles))
            if not list(full.parameters()):
                for mine, theirs in zip(lower.entries, terms.entries, strict=True):
                    self.assertTrue(self.same_values(mine.b, theirs.b))

    def test_zero_adds_nothing_and_can_learn(self) -> None:
        encoding = self.make()
        if not self.zero_start:
            with self.assertRaises(ValueError):
                encoding.zero_()
            return
        index = self.make_index(9, 9)
        q, k, v, grad = Case("zero").inputs(*index.shape)
        encoding.zero_()
        for name in NOT_COMPILED:
            if name in self.refused:
                continue
            with self.subTest(implementation=name), torch.no_grad():
                out = rb.relative_attention(q, k, v, self.terms(encoding, index), implementation=name)
                without = rb.relative_attention(q, k, v, implementation=name)
                if name == "blockwise":  # which sums in another order where there is something to add
                    torch.testing.assert_close(out, without, rtol=0, atol=1e-12)
                else:
                    self.assertTrue(torch.equal(out, without))
        if self.terms(encoding, index).names:
            out = rb.relative_attention(q, k, v, self.terms(encoding, index), implementation="reference")
            grads = torch.autograd.grad(out, list(encoding.parameters()), grad)
            self.assertTrue(any(bool(g.any()) for g in grads), "no parameter can leave zero")

    def test_strength_scales_the_terms(self) -> None:
        if not self.takes_strength():
            return
        plain, scaled = self.make(), self.make(strength=1.0)
        scaled.load_state_dict(plain.state_dict(), strict=False)
        nn.init.ones_(scaled.strength)
        index = self.make_index(9, 9)
        q, k, v, grad = Case("strength").inputs(*index.shape)
        out = rb.relative_attention(q, k, v, self.terms(scaled, index), implementation="reference")
        expected = rb.relative_attention(q, k, v, self.terms(plain, index), implementation="reference")
        torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
        if self.terms(plain, index).names:
            (gradient,) = torch.autograd.grad(out, scaled.strength, grad)
            self.assertTrue(bool(gradient.isfinite().all()) and bool(gradient.any()))

    def layer(self) -> tuple[nn.Module, tuple[Tensor, ...]]:
        """RelativeAttention with the encoding, and inputs for it; a pairwise index is made inside the call."""
        attention = rb.RelativeAttention(HEADS * HEAD_DIM, HEADS, self.make(torch.float32), self.relation)
        n, _ = self.make_index(9, 9).shape
        x = torch.randn(BATCH, n, HEADS * HEAD_DIM)
        values = self.pair_values(n, n)
        return (attention, (x,)) if values is None else (_WithPairs(attention, self.relation), (x, *values))

    def test_compiles_without_graph_breaks(self) -> None:
        module, inputs = self.layer()
        torch._dynamo.reset()
        compiled = torch.compile(module, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(*inputs), module(*inputs))

    def test_exports(self) -> None:
        """Over a pairwise relation for any number of items and tokens."""
        module, inputs = self.layer()
        sizes: Any = None
        if isinstance(module, _WithPairs):
            open_sizes = [dict.fromkeys(range(tensor.ndim), torch.export.Dim.AUTO) for tensor in inputs]
            sizes = open_sizes[0], tuple(open_sizes[1:])
        exported = torch.export.export(module.eval(), inputs, dynamic_shapes=sizes)
        torch.testing.assert_close(exported.module()(*inputs), module(*inputs))
        if isinstance(module, _WithPairs):
            x, values = torch.randn(BATCH, 12, HEADS * HEAD_DIM), self.pair_values(12, 12) or ()
            others = [torch.cat((tensor, tensor)) for tensor in (x, *values)]
            torch.testing.assert_close(exported.module()(*others), module(*others))


class _WithPairs(nn.Module):
    def __init__(self, attention: rb.RelativeAttention, relation: Relation) -> None:
        super().__init__()
        self.attention, self.relation = attention, relation

    def forward(self, x: Tensor, *values: Tensor) -> Tensor:
        return self.attention(x, index=self.relation(*values))
