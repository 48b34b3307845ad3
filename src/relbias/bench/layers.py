"""Whole layers, with their projections: ours, a plain one, and those of other libraries."""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from relbias.attention.functional import IMPLEMENTATIONS
from relbias.attention.module import RelativeAttention
from relbias.bench.attentions import moved, seeded
from relbias.bench.candidates import Candidate, Exact
from relbias.bench.cases import Problem
from relbias.bench.peers import PEERS


class PlainLayer(nn.Module):
    """Projections around attention without any relation.

    Args:
        dim: H D.
        num_heads: H.
    """

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.projections = nn.ModuleList(nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (p(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for p in list(self.projections)[:3])
        out = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.projections[3](out.transpose(1, 2).flatten(2))


class Layers:
    """The random input of a problem as layers see it, and layers for it.

    Args:
        problem: the problem; the layers are H D wide.
        name: the encoding's.
        dtype: of the input and all parameters.
        device: where they lie.

    Raises:
        ValueError: the encoding does not fit the problem.
    """

    def __init__(self, problem: Problem, name: str, dtype: torch.dtype, device: torch.device) -> None:
        batch, heads, n, size = problem.shape
        self.problem, self.name, self.dtype, self.device = problem, name, dtype, device
        with seeded():
            self.x, self.grad = (torch.randn(batch, n, heads * size).to(device, dtype) for _ in range(2))
            encoding = problem.encoding(name)
            self.layer = moved(RelativeAttention(heads * size, heads, encoding)).to(device, dtype)
        self.x.requires_grad_()
        self.index = problem.bind(encoding.relation).to(device)
        self.exact = functools.cache(self._exact)

    def plain(self) -> Candidate:
        """A layer without any relation."""
        _, heads, _, size = self.problem.shape
        return self._candidate("plain", PlainLayer(heads * size, heads))

    def implementation(self, name: str) -> Candidate:
        """RelativeAttention with one of `list_implementations()`."""
        layer = copy.deepcopy(self.layer)
        layer.implementation = name

        def call() -> Tensor:
            return layer(self.x, index=self.index)

        def refusal() -> str | None:
            like: Any = {"device": self.device, "dtype": self.dtype, "requires_grad": True}
            q, k, v = (torch.empty(self.problem.shape, **like) for _ in range(3))
            return IMPLEMENTATIONS[name].supports(q, k, v, layer.encoding(self.index, x=self.x, attention=layer))

        return Candidate(name, call, [self.x, *layer.parameters()], self.grad, self.exact, refusal=refusal)

    def peers(self) -> Sequence[Candidate]:
        """The layers of other libraries for the same encoding, with weights of their own; a missing one is refused."""
        _, heads, _, size = self.problem.shape
        candidates = []
        for peer in PEERS.get(self.name, ()):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # what their imports say about their own code
                    module = peer.make(heads, size, self.problem.relations[0])
            except ModuleNotFoundError as error:
                missing = f"{(error.name or 'a package').partition('.')[0]} is not installed"
                candidates.append(self._candidate(peer.name, nn.Identity(), missing))
                continue
            if module is not None:
                candidates.append(self._candidate(peer.name, module))
        return candidates

    def _candidate(self, name: str, module: nn.Module, refusal: str | None = None) -> Candidate:
        module = module.to(self.device, self.dtype)
        wanted = [self.x, *module.parameters()]
        return Candidate(name, lambda: module(self.x), wanted, self.grad, refusal=lambda: refusal)

    def _exact(self) -> Exact:
        layer = copy.deepcopy(self.layer).double()
        layer.implementation = "reference"
        x = self.x.detach().double().requires_grad_()
        out = layer(x, index=self.index)
        wanted = [x, *layer.parameters()]
        grads = torch.autograd.grad(out, wanted, self.grad.double(), allow_unused=True, materialize_grads=True)
        return Exact(x.shape[1], out.detach(), grads)
