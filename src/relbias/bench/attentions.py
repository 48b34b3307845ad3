"""Attention on given q, k and v: plain, by each implementation, and with a mask as people make it today."""

from __future__ import annotations

import copy
import functools
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn

from relbias.attention.functional import IMPLEMENTATIONS, relative_attention
from relbias.bench.candidates import DIRECTIONS, Candidate, Exact
from relbias.bench.cases import Problem
from relbias.encodings import Encoding
from relbias.relations import Index
from relbias.relations.base import ALL_ROWS
from relbias.terms import Terms

scaled_dot_product_attention = nn.functional.scaled_dot_product_attention

AnyModule = TypeVar("AnyModule", bound=nn.Module)

_EXACT_LOGITS = 2**24
"""How many logits the exact result may have; of a longer sequence only the last queries are compared."""


class Attentions:
    """The random inputs of a problem, and what is computed from them.

    Args:
        problem: the problem.
        name: the encoding's.
        dtype: of q, k, v and the encoding's parameters.
        device: where they lie.

    Raises:
        ValueError: the encoding does not fit the problem, or needs more than the index and the layer's input.
    """

    def __init__(self, problem: Problem, name: str, dtype: torch.dtype, device: torch.device) -> None:
        batch, heads, n, size = problem.shape
        with seeded():
            tensors = (torch.randn(problem.shape).to(device, dtype) for _ in range(4))
            self.q, self.k, self.v, self.grad = tensors
            self.x = torch.randn(batch, n, heads * size).to(device, dtype)
            self.encoding: Encoding = moved(problem.encoding(name)).to(device, dtype)
        for tensor in (self.q, self.k, self.v):
            tensor.requires_grad_()
        self.problem = problem
        self.index = problem.bind(self.encoding.relation).to(device)
        self.parameters = list(self.encoding.parameters())
        self.exact = functools.cache(self._exact)
        self.terms()

    def terms(self) -> Terms:
        """The terms, made anew as in each forward pass of a model."""
        return self.encoding(self.index, x=self.x)

    def plain(self) -> Candidate:
        """Attention without any relation."""

        def call() -> Tensor:
            return scaled_dot_product_attention(self.q, self.k, self.v)

        return Candidate("plain", call, [self.q, self.k, self.v], self.grad)

    def implementation(self, name: str) -> Candidate:
        """One of `list_implementations()`."""

        def call() -> Tensor:
            return relative_attention(self.q, self.k, self.v, self.terms(), implementation=name)

        def refusal() -> str | None:
            return IMPLEMENTATIONS[name].supports(self.q, self.k, self.v, self.terms())

        return Candidate(name, call, self._wanted, self.grad, self.exact, refusal=refusal)

    def peers(self) -> Sequence[Candidate]:
        """For a bias alone: the bias of every pair read with table[:, codes] and given as a mask.

        Made anew in each call, as one that is trained must be, and for inference also made once and kept.
        """
        if self.terms().names != ("b",):
            return []

        def call() -> Tensor:
            return scaled_dot_product_attention(self.q, self.k, self.v, attn_mask=self._mask())

        with torch.no_grad():
            kept = self._mask()

        def with_kept() -> Tensor:
            return scaled_dot_product_attention(self.q, self.k, self.v, attn_mask=kept)

        return [
            Candidate("mask", call, self._wanted, self.grad, self.exact),
            Candidate("kept mask", with_kept, self._wanted, self.grad, self.exact, directions=DIRECTIONS[:1]),
        ]

    @property
    def _wanted(self) -> list[Tensor]:
        return [self.q, self.k, self.v, *self.parameters]

    def _mask(self) -> Tensor:
        total = torch.zeros((), device=self.q.device)
        for entry in self.terms().entries:
            bias = entry.b
            if bias is not None and not isinstance(bias, Tensor):
                bias = bias(ALL_ROWS)
            elif bias is not None and entry.index is not None:
                codes = entry.index.codes(device=self.q.device)
                bias = bias[:, codes[:, 0]].transpose(0, 1)
            if bias is not None:
                total = total + bias
        return total.to(self.q.dtype)

    def _exact(self) -> Exact:
        batch, heads, n, _ = self.problem.shape
        queries = min(n, max(1, _EXACT_LOGITS // (batch * heads * n)))
        if self.problem.bind_last is None:
            queries = n
        index: Index = self.index
        if queries < n and self.problem.bind_last is not None:
            index = self.problem.bind_last(self.encoding.relation, queries).to(self.q.device)
        encoding: Encoding = copy.deepcopy(self.encoding).double()
        q, k, v = (tensor.detach().double().requires_grad_() for tensor in (self.q, self.k, self.v))
        last = slice(n - queries, None)
        out = relative_attention(q[:, :, last], k, v, encoding(index, x=self.x.double()), implementation="reference")
        wanted, grad = [q, k, v, *encoding.parameters()], self.grad[:, :, last].double()
        grads = torch.autograd.grad(out, wanted, grad, allow_unused=True, materialize_grads=True)
        return Exact(queries, out.detach(), grads)


@contextmanager
def seeded() -> Generator[None]:
    """The same random numbers at each call, and those of the program as they would have been without."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def moved(module: AnyModule) -> AnyModule:
    """The module with its parameters moved from their start, where some are zero."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    return module
