"""Biases from features and from Gaussian kernels against torch's own modules and densities, on all pairs at once."""

from __future__ import annotations

import torch
from torch import nn

import relbias as rb

BATCH, HEADS, N, SIZE = 2, 3, 6, 4


def attention(q, k, v, bias):
    return (q @ k.mT / SIZE**0.5 + bias).softmax(dim=-1) @ v


def test_feature_mlp(dtype, implementation, assert_same):
    torch.manual_seed(0)
    q, k, v = (torch.randn(BATCH, HEADS, N, SIZE, dtype=dtype, requires_grad=True) for _ in range(3))
    features = rb.relations.random_walks((torch.rand(BATCH, N, N, dtype=dtype) < 0.4).to(dtype), 5)
    network = nn.Sequential(nn.Linear(5, 7), nn.GELU(), nn.Linear(7, HEADS)).to(dtype)
    encoding = rb.encodings.FeatureMLP(HEADS, SIZE, rb.relations.Features(5), width=7, dtype=dtype)
    encoding.hidden.load_state_dict(network[0].state_dict())
    encoding.out.load_state_dict(network[2].state_dict())
    terms = encoding(rb.relations.Features(5)(features))
    ours = rb.relative_attention(q, k, v, terms, implementation=implementation)
    theirs = attention(q, k, v, network(features).movedim(-1, 1))
    # A bias that is the same for all pairs, the last one, changes nothing.
    assert_same((ours, [q, k, v, *encoding.parameters()][:-1]), (theirs, [q, k, v, *network.parameters()][:-1]))


def test_gaussian_3d(dtype, implementation, assert_same):
    torch.manual_seed(0)
    kernels, kinds = 6, 3
    q, k, v = (torch.randn(BATCH, HEADS, N, SIZE, dtype=dtype, requires_grad=True) for _ in range(3))
    places = torch.randn(BATCH, N, 3, dtype=dtype)
    distances = (places[:, :, None] - places[:, None]).norm(dim=-1)
    types = torch.randint(0, kinds, (BATCH, N, N))
    relation = rb.relations.Distances(kinds)
    encoding = rb.encodings.Gaussian3D(HEADS, SIZE, relation, num_kernels=kernels, dtype=dtype)
    with torch.no_grad():
        encoding.factors.uniform_(0.5, 2.0)
        encoding.shifts.uniform_(-0.5, 0.5)
        encoding.widths.copy_(torch.linspace(-2.0, 2.0, kernels))  # their sign does not count
    copies = {name: p.detach().clone().requires_grad_() for name, p in encoding.named_parameters()}
    x = copies["factors"][types] * distances + copies["shifts"][types]
    normal = torch.distributions.Normal(copies["means"], copies["widths"].abs() + 1e-5)
    hidden = nn.functional.gelu(normal.log_prob(x[..., None]).exp() @ copies["hidden.weight"].T + copies["hidden.bias"])
    bias = hidden @ copies["out.weight"].T
    index = relation(rb.relations.pairwise_distances(places), types)
    ours = rb.relative_attention(q, k, v, encoding(index), implementation=implementation)
    names = [name for name in copies if name != "out.bias"]  # the same for all pairs, it changes nothing
    parameters = dict(encoding.named_parameters())
    assert_same(
        (ours, [q, k, v, *(parameters[name] for name in names)]),
        (attention(q, k, v, bias.movedim(-1, 1)), [q, k, v, *(copies[name] for name in names)]),
    )
