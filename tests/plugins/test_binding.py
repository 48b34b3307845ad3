"""Values bound for the time of one call."""

import threading

import pytest
import torch
from torch import nn

from relbias.plugins.binding import bind, bind_children, bound


def test_innermost_binding_counts_and_nothing_is_left():
    with bind("outer"):
        with pytest.raises(KeyError, match="inner"), bind("inner"):
            raise KeyError(bound())
        assert bound() == "outer"
    assert bound() is None


def test_threads_do_not_see_each_other():
    seen = []
    with bind("here"):
        thread = threading.Thread(target=lambda: seen.append(bound()))
        thread.start()
        thread.join()
    assert seen == [None]


class Reads(nn.Module):
    def forward(self, x):
        return x * bound()


def test_stand_in_binds_by_itself_and_shares_everything():
    module = nn.Module()
    module.blocks = nn.Sequential(Reads(), Reads())
    module.weight = nn.Parameter(torch.ones(1))
    stand_in = bind_children(module, "blocks", 3)
    assert stand_in.weight is module.weight
    with bind(5):
        assert [block(torch.ones(1)).item() for block in stand_in.blocks] == [3, 3]
        assert [block(torch.ones(1)).item() for block in module.blocks] == [5, 5]
