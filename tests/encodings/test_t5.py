import math

import pytest
import torch

from relbias.encodings import T5
from relbias.testing import EncodingTestCase


def bucket(offset, num_buckets, max_distance, bidirectional):
    """T5's buckets, one offset at a time."""
    if bidirectional:
        n, first, distance = num_buckets // 2, num_buckets // 2 if offset > 0 else 0, abs(offset)
    else:
        n, first, distance = num_buckets, 0, max(-offset, 0)
    exact = n // 2
    if distance < exact:
        return first + distance
    steps = math.log(distance / exact) / math.log(max_distance / exact) * (n - exact)
    return first + min(exact + int(steps + 1e-9), n - 1)


class TestT5(EncodingTestCase):
    encoding = T5
    options = {"num_buckets": 8, "max_distance": 9}
    bidirectional = True

    def logits(self, encoding, q, k, scale, index):
        n, m = index.shape
        bias = torch.stack(
            [
                torch.stack(
                    [
                        encoding.table[:, bucket(self.loop_offset(index, i, j), 8, 9, self.bidirectional)]
                        for j in range(m)
                    ]
                )
                for i in range(n)
            ]
        )
        return scale * q @ k.mT + bias.permute(2, 0, 1)


class TestT5Causal(TestT5):
    encoding = T5
    options = {"num_buckets": 8, "max_distance": 9, "bidirectional": False}
    bidirectional = False


@pytest.mark.parametrize(("num_buckets", "max_distance"), [(3, 128), (2, 128), (32, 8)])
def test_refuses_buckets_that_do_not_work(num_buckets, max_distance):
    with pytest.raises(ValueError, match="buckets"):
        T5(4, 16, num_buckets=num_buckets, max_distance=max_distance)
