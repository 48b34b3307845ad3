"""Relations of trees on other devices, compiled and exported."""

from __future__ import annotations

import pytest
import torch

from relbias.relations import (
    ancestor_codes,
    between_tokens,
    depth_codes,
    neighbor_codes,
    sibling_codes,
    step_codes,
    tree_hops,
    tree_steps,
)

FUNCTIONS = {
    "tree_hops": tree_hops,
    "tree_steps": lambda parents: tree_steps(parents)[0],
    "step_codes": lambda parents: step_codes(parents, 2),
    "ancestor_codes": lambda parents: ancestor_codes(parents, 2),
    "sibling_codes": lambda parents: sibling_codes(parents, 2),
    "depth_codes": lambda parents: depth_codes(parents, 2),
    "neighbor_codes": neighbor_codes,
}
# Each takes seconds to trace, and these two use all that the others do.
SOME = [
    pytest.param(name, marks=() if name in ("step_codes", "neighbor_codes") else pytest.mark.slow) for name in FUNCTIONS
]
SEVERAL = torch.tensor([[-1, 0, 0, 1, 1, -1], [2, 2, -1, -1, -1, -1]])
OTHERS = [
    torch.tensor([[-1, 0, 1]] * 3),
    torch.arange(-1, 19).repeat(5, 1),
    torch.tensor([[1, -1], [-1, 0], [-1, -1], [-1, 0]]),
]


class Module(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


@pytest.mark.parametrize("name", SOME)
def test_one_compilation_serves_all_sizes(name):
    torch.compiler.reset()
    compiled = torch.compile(FUNCTIONS[name], fullgraph=True, backend="eager", dynamic=True)
    with torch._dynamo.config.patch(recompile_limit=2):
        for parents in (SEVERAL, *OTHERS):
            assert torch.equal(compiled(parents), FUNCTIONS[name](parents))


@pytest.mark.parametrize("name", SOME)
def test_an_exported_module_serves_all_sizes(name):
    sizes = {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}
    exported = torch.export.export(Module(FUNCTIONS[name]), (SEVERAL,), dynamic_shapes=((sizes,),)).module()
    for parents in OTHERS:
        assert torch.equal(exported(parents), FUNCTIONS[name](parents))


def test_tokens_of_any_number_are_exported():
    batch, nodes, tokens = (torch.export.Dim(name, min=1) for name in ("batch", "nodes", "tokens"))
    shapes = ({0: batch, 1: nodes, 2: nodes}, {0: batch, 1: tokens})

    def function(values, node_of_token):
        return between_tokens(values, node_of_token, -1)

    exported = torch.export.export(
        Module(function), (torch.rand(2, 4, 4), torch.tensor([[0, -1, 3], [1, 1, 2]])), dynamic_shapes=(shapes,)
    ).module()
    values, node_of_token = torch.rand(3, 7, 7), torch.randint(-1, 7, (3, 5))
    assert torch.equal(exported(values, node_of_token), function(values, node_of_token))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_without_values(name):
    codes = FUNCTIONS[name](torch.zeros(2, 6, dtype=torch.int32, device="meta"))
    assert codes.shape == (2, 6, 6)
    assert codes.dtype == torch.int16
    assert codes.device.type == "meta"
