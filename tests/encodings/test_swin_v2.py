import copy
import math

import pytest
import torch

import relbias as rb
from relbias.encodings import SwinV2
from relbias.relations import Grid
from relbias.testing import EncodingTestCase


def log_spaced(offset, size):
    if size == 1:
        return 0.0
    x = 8 * offset / (size - 1)
    return math.copysign(math.log2(1 + abs(x)) / math.log2(8), x)


class TestSwinV2(EncodingTestCase):
    encoding = SwinV2
    options = {"width": 7}
    relation = Grid(3, 4, prefix_tokens=1)
    window = (3, 4)

    def logits(self, encoding, q, k, scale, index):
        def number(offset):
            if isinstance(offset[0], str):
                pairs = [("prefix 0", "patch"), ("patch", "prefix 0"), ("prefix 0", "prefix 0")]
                return encoding.prefix[:, pairs.index(offset)]
            x = torch.tensor([log_spaced(*pair) for pair in zip(offset, self.window, strict=True)], dtype=q.dtype)
            return encoding.out.weight @ (encoding.hidden.weight @ x + encoding.hidden.bias).clamp(min=0)

        n, m = index.shape
        numbers = [torch.stack([number(self.loop_offset(index, i, j)) for j in range(m)], 1) for i in range(n)]
        return scale * q @ k.mT + 16 / (1 + torch.exp(-torch.stack(numbers, 1)))


class TestSwinV2InAWindowOfOneRow(TestSwinV2):
    options = {"width": 5, "pretrained_window": (1, 8)}
    relation = Grid(1, 6)
    window = (1, 8)


def test_the_network_sees_offsets_and_not_pairs():
    encoding, sizes = SwinV2(2, 4, Grid(12, 12), width=64), []

    class Sizes(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            sizes.extend(o.numel() for o in (out if isinstance(out, tuple | list) else (out,)) if torch.is_tensor(o))
            return out

    with Sizes():
        encoding(Grid(12, 12)()).entries[0].b.sum().backward()
    assert max(sizes) == 23 * 23 * 64


@pytest.mark.parametrize("size", [(1, 1), (1, 5), (5, 1)])
def test_an_axis_of_one_patch_is_not_divided_by_zero(size):
    encoding = SwinV2(2, 4, Grid(*size))
    (entry,) = encoding(Grid(*size)()).entries
    entry.b.sum().backward()
    assert entry.b.isfinite().all()
    assert encoding.hidden.weight.grad.isfinite().all()


def test_an_offset_has_the_same_bias_on_any_size_of_grid():
    encoding = SwinV2(2, 4, Grid(3, 5, prefix_tokens=2))
    (own,), (large,) = (encoding(encoding.grid_index(*size)).entries for size in ((3, 5), (9, 11)))
    tokens = torch.tensor([0, 1, *(2 + 11 * y + x for y in range(3) for x in range(5))])
    matrix = large.b[:, large.index.codes()[0, 0]][:, tokens][:, :, tokens]
    torch.testing.assert_close(own.b[:, own.index.codes()[0, 0]], matrix, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_has_the_biases_of_float32(dtype):
    half = SwinV2(2, 4, Grid(5, 7, prefix_tokens=1)).to(dtype)
    full = copy.deepcopy(half).float()
    (lower,), (entry,) = (encoding(encoding.grid_index(5, 7)).entries for encoding in (half, full))
    assert torch.equal(lower.b, entry.b)
    assert torch.equal(half.paper_scale, full.paper_scale)


def test_starts_in_the_middle_with_a_scale_of_ten():
    encoding = SwinV2(2, 4, Grid(3, 3, prefix_tokens=1))
    (entry,) = encoding(Grid(3, 3, prefix_tokens=1)()).entries
    torch.testing.assert_close(entry.b, torch.full_like(entry.b, 8.0), rtol=0, atol=0.5)
    torch.testing.assert_close(encoding.paper_scale, torch.full((2,), 10.0))


def test_the_scale_is_at_most_100_and_then_has_no_gradient():
    encoding = SwinV2(2, 4, Grid(3, 3))
    with torch.no_grad():
        encoding.log_scale.copy_(torch.tensor([3.0, 7.0]))
    scale = encoding.paper_scale
    torch.testing.assert_close(scale, torch.tensor([math.exp(3.0), 100.0]))
    scale.sum().backward()
    torch.testing.assert_close(encoding.log_scale.grad, torch.tensor([math.exp(3.0), 0.0]))


def test_the_paper_scale_is_a_parameter_where_it_is_used_and_only_there():
    relation, x = Grid(2, 3), torch.randn(2, 6, 8)
    paper = rb.RelativeAttention(8, 2, "swin_v2", relation, scale="paper")
    paper(x).square().sum().backward()
    assert paper.encoding.log_scale.grad.abs().min() > 0
    other = rb.RelativeAttention(8, 2, "swin_v2", relation)
    other(x).square().sum().backward()
    assert all(parameter.grad is not None for parameter in other.parameters())
    total = rb.RelativeAttention(8, 2, {"a": "swin_v2", "b": "irpe"}, relation)
    total(x).square().sum().backward()
    assert all(parameter.grad is not None for parameter in total.parameters())
    attached = SwinV2(2, 4, relation)
    attached.zero_()
    attached.reset_parameters()
    assert (attached.log_scale, attached.paper_scale) == (None, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, "'swin_v2' width must be an integer of at least 1"),
        ({"pretrained_window": (8,)}, r"is \(height, width\), in patches"),
        ({"pretrained_window": 8}, r"is \(height, width\), in patches, got 8"),
        ({"pretrained_window": (0, 8)}, "pretrained_window's height must be an integer of at least 1"),
        ({"relation": Grid(3, 3, max_distance=1)}, "takes a Grid unclipped"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(ValueError, match=message):
        SwinV2(4, 16, **{"relation": Grid(3, 3), **options})
