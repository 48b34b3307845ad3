"""Pairs of labels."""

from __future__ import annotations

import pytest
import torch

import relbias as rb
from relbias.encodings import Table
from relbias.relations import Labels

VOICES = Labels(4)


@pytest.mark.parametrize("batch", [(3, 3), (1, 3), (3, 1), (1, 1)])
@pytest.mark.parametrize("size", [(4, 5), (0, 0), (0, 3)])
def test_every_pair_by_a_loop(batch, size):
    queries, keys = torch.randint(4, (batch[0], size[0])), torch.randint(4, (batch[1], size[1]))
    index = VOICES(queries, keys)
    assert (index.shape, index.batch_heads, index.num_codes) == (size, (max(batch), 1), 16)
    for item in range(max(batch)):
        for i in range(size[0]):
            for j in range(size[1]):
                a, b = int(queries[item % batch[0], i]), int(keys[item % batch[1], j])
                assert index.codes()[item, 0, i, j] == 4 * a + b
                assert index.T.codes()[item, 0, i, j] == 4 * b + a
                assert index.codes(slice(i, i + 1))[item, 0, 0, j] == 4 * a + b


def test_the_keys_have_the_labels_of_the_queries_by_default():
    labels = torch.tensor([3, 0, 2], dtype=torch.uint16)
    index = VOICES(labels)
    assert torch.equal(index.codes(), VOICES(labels.long()[None], labels.long()).codes())
    assert torch.equal(index.T.codes(), index.codes().mT)
    assert torch.equal(index.to("cpu").T.T.codes(), index.codes())
    assert index.T.code_space == VOICES.code_space


def test_a_table_over_labels_is_read_in_attention():
    labels = torch.tensor([[0, 1, 2], [2, 2, 1]])
    encoding = Table(2, 4, Labels(3)).double()
    torch.nn.init.normal_(encoding.table)
    q, k, v = torch.randn(3, 2, 2, 3, 4, dtype=torch.float64)
    out = rb.relative_attention(q, k, v, encoding(Labels(3)(labels)))
    bias = torch.stack([encoding.table[:, 3 * row[:, None] + row[None]] for row in labels])
    torch.testing.assert_close(out, (q @ k.mT / 2 + bias).softmax(-1) @ v)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Labels(0), "num_labels must be an integer of at least 1, got 0"),
        (lambda: VOICES(torch.tensor([0, 4])), "takes labels from 0 to 3, got 4"),
        (lambda: VOICES(torch.tensor([0]), torch.tensor([-1])), "takes labels from 0 to 3, got -1"),
        (lambda: VOICES(torch.tensor([0.0])), "labels must be integers, got torch.float32"),
        (lambda: VOICES(torch.zeros(1, 1, 1, dtype=torch.int64)), r"shape \(N,\) or \(B, N\), got \(1, 1, 1\)"),
        (lambda: VOICES(torch.zeros(2, 3).long(), torch.zeros(3, 3).long()), "batch of 2 and key_labels of 3"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()
