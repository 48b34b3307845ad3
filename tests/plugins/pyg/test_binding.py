"""The graphs of a call are bound for that call alone, and its layers share what is made from them."""

import copy
import io
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from tests.plugins.pyg.gps import batch_of_traps, call
from tests.plugins.pyg.graphs import random_graph
from tests.plugins.pyg.test_attach import attached, train
from torch import nn
from torch_geometric.data import Batch
from torch_geometric.nn import GPSConv

import relbias as rb
from relbias.plugins.binding import bound
from relbias.plugins.pyg import attach, detach
from relbias.relations import Distances, EdgePaths, Hops


@pytest.fixture
def made(monkeypatch):
    """How often an index was made."""
    count, real = [], Hops.of_graphs
    monkeypatch.setattr(Hops, "of_graphs", lambda self, graphs: count.append(1) or real(self, graphs))
    return count


def other_batch():
    return Batch.from_data_list([random_graph(n, 2 * n, n) for n in (5, 11, 3)])


def in_double(data):
    data.x = data.x.double()
    return data


def gradients(model):
    return [None if p.grad is None else p.grad.clone() for p in model.parameters()]


PATHS = {"hops": "table", "edges": "graphormer_edges"}, {"edges": EdgePaths(num_features=16)}


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("given", [("table", None), PATHS], ids=["hops", "embedded edges"])
def test_checkpointing(reentrant, given):
    data = in_double(batch_of_traps())
    plain, model = attached(*given).double(), attached(*given).double()
    model.reentrant = reentrant
    expected = call(plain, data)
    expected.square().sum().backward()
    got = call(model, data)
    with torch.no_grad():  # other graphs before the layers are recomputed
        call(model, in_double(other_batch()))
    got.square().sum().backward()
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)
    for one, other in zip(gradients(model), gradients(plain), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_a_whole_model_is_recomputed():
    data, model = in_double(batch_of_traps()), attached().double()
    call(model, data).square().sum().backward()
    expected = gradients(model)
    model.zero_grad()
    x = data.x.clone().requires_grad_()
    out = torch.utils.checkpoint.checkpoint(model, x, data.edge_index, data.batch, data.edge_attr, use_reentrant=False)
    call(model, in_double(other_batch()))
    out.square().sum().backward()
    for one, other in zip(gradients(model), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    assert bound() is None


def test_threads():
    model = attached()
    batches = [batch_of_traps(), other_batch()] * 4
    with torch.no_grad():
        expected = [call(model, data) for data in batches]
        barrier = threading.Barrier(len(batches))

        def run(data):
            barrier.wait()
            return [call(model, data) for _ in range(5)]

        with ThreadPoolExecutor(len(batches)) as pool:
            for outs, one in zip(pool.map(run, batches), expected, strict=True):
                for out in outs:
                    torch.testing.assert_close(out, one, rtol=1e-5, atol=1e-5)


def test_layers_share_an_index(made):
    model = attached()
    made.clear()
    with torch.no_grad():
        call(model, batch_of_traps())
        assert len(made) == 1
        call(model, batch_of_traps())
        assert len(made) == 2
        for conv in model.convs:  # outside of a call of the model each layer makes its own
            conv(torch.randn(3, 16), torch.tensor([[0, 1], [1, 2]]), edge_attr=torch.zeros(2, 16))
    assert len(made) == 5
    assert bound() is None


def test_layers_of_other_graphs_do_not_share(made):
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = GPSConv(8, None, heads=2).eval(), GPSConv(8, None, heads=2).eval()
            self.change = None

        def forward(self, x, edge_index):
            edge_index = edge_index.clone()
            x = self.first(x, edge_index)
            return self.second(x, self.change(edge_index))

    def in_place(edge_index):
        edge_index[1, 0] = 3
        return edge_index

    torch.manual_seed(0)
    model = Pair()
    attach(model, "table")
    train(model)
    x, edges = torch.randn(4, 8), torch.tensor([[0, 1, 2], [1, 2, 3]])
    for change, times in ((lambda e: e, 1), (lambda e: e.flip(0), 2), (in_place, 2)):
        made.clear()
        model.change = change
        got = model(x, edges)
        assert len(made) == times
        assert torch.equal(got, model.second(model.first(x, edges), change(edges.clone())))
    with torch.inference_mode():
        model.change = lambda e: e
        model(x, edges)


def test_layers_in_other_modes_do_not_share():
    """What one makes without gradients, or as an inference tensor, is of no use to one that needs gradients."""

    class Frozen(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = GPSConv(8, None, heads=2).eval(), GPSConv(8, None, heads=2).eval()
            self.mode = None

        def forward(self, x, edge_index, pos):
            with self.mode:
                first = self.first(x, edge_index, pos=pos)
            return first.clone() + self.second(x, edge_index, pos=pos)

    torch.manual_seed(0)
    model = Frozen()
    attach(model, "gaussian_3d", relation=Distances())
    train(model)
    x, edges = torch.randn(3, 8), torch.tensor([[0, 1], [1, 2]])
    found = []
    for mode in (torch.no_grad(), torch.inference_mode()):
        model.mode = mode
        pos = torch.randn(3, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
        (model(x, edges, pos) ** 2).sum().backward()
        found.append(pos.grad)
    assert found[0].any()
    assert torch.equal(*found)


def test_nothing_is_left_after_a_failure():
    model, data = attached(), batch_of_traps()
    with pytest.raises(ValueError, match="nodes"):
        model(data.x[:5], data.edge_index, None, data.edge_attr)
    assert bound() is None
    hook = model.convs[1].register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        call(model, data)
    assert bound() is None
    hook.remove()
    early = model.register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        call(model, data)
    assert bound() is None
    early.remove()


def test_an_attached_model_in_another():
    """Each binds its own; the outer one's is back after the inner one's call."""
    inner, data = attached(), batch_of_traps()
    with torch.no_grad():
        expected = call(inner, data)

        class Outer(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner, self.after = inner, GPSConv(16, None, heads=2).eval()

            def forward(self, data):
                return self.after(call(self.inner, data), data.edge_index, data.batch)

        outer = Outer()
        attach(outer.after, "table")
        train(outer.after)
        whole = outer(data)
        assert torch.equal(whole, outer.after(expected, data.edge_index, data.batch))


def test_copies_work_by_themselves(made):
    model, data = attached(), batch_of_traps()
    with torch.no_grad():
        expected = call(model, data)
        twin = copy.deepcopy(model)
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=False)
        detach(model)
        for other in (twin, loaded):
            made.clear()
            assert torch.equal(call(other, data), expected)
            assert len(made) == 1
            detach(other)
            assert not other._forward_pre_hooks
            assert not other._forward_hooks


def test_the_attention_by_itself_knows_no_graphs():
    conv = GPSConv(8, None, heads=2)
    attach(conv, "table")
    x = torch.randn(1, 3, 8)
    with pytest.raises(ValueError, match=r"called by itself.*call the GPSConv"):
        conv.attn(x, x, x)
    attention = conv.attn
    conv.attn.forward = lambda *args, **kwargs: torch.utils.checkpoint.checkpoint(
        type(attention).forward, attention, *args, use_reentrant=False, **kwargs
    )
    out = conv(torch.randn(3, 8, requires_grad=True), torch.tensor([[0, 1], [1, 2]]))
    with pytest.raises(ValueError, match="checkpoint the whole GPSConv"):
        out.sum().backward()


@pytest.mark.slow
def test_compiled():
    """In parts, as PyG's own is: the index is made outside of what is compiled."""
    model, data = attached(depth=2), batch_of_traps()
    with torch.no_grad():
        expected = call(model, data)
        compiled = torch.compile(model, backend="eager")
        torch.testing.assert_close(call(compiled, data), expected)
        other = other_batch()
        torch.testing.assert_close(call(compiled, other), call(model, other))
    assert bound() is None
    detach(compiled)
    assert not any(isinstance(module, rb.Encoding) for module in model.modules())
