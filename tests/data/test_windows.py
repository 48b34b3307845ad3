import pytest
import torch

from relbias.data.windows import IGNORED, Part, in_order, quarter, test_starts, training_starts

# pytest would take it for a test.
starts_of_test = test_starts
del test_starts


def last_quarters(size, length, longest):
    """The places of the targets in the last quarters of the windows of the test, in their order."""
    part = Part([torch.arange(size)])
    loader = in_order(part, length, starts_of_test(size, length, longest), 4, 0)
    return torch.cat([targets[:, length - quarter(length) :].flatten() for _, targets in loader])


@pytest.mark.parametrize("size", [100, 65, 300, 77])
def test_windows_of_every_length_predict_the_same_tokens_in_their_last_quarters(size):
    expected = last_quarters(size, 64, 64)
    assert expected.tolist() == list(range(size - len(expected), size))  # each once, up to the last token
    assert len(expected) == 16 * ((size - 65) // 16 + 1)
    for length in (8, 16, 32):
        assert torch.equal(last_quarters(size, length, 64), expected)


@pytest.mark.parametrize("length", [1, 2, 3, 5, 7, 50])
def test_windows_of_odd_lengths_differ_by_less_than_a_quarter(length):
    found, others = last_quarters(200, length, 50), last_quarters(200, 50, 50)
    assert found.tolist() == list(range(200 - len(found), 200))
    assert 0 <= len(others) - len(found) < quarter(length)


def test_windows_longer_than_the_longest_are_fewer():
    assert last_quarters(200, 160, 64).tolist() == list(range(160, 200))
    assert len(starts_of_test(161, 160, 64)) == 1


def test_no_window_leaves_the_part():
    for size in range(17, 60):
        for length in range(1, 17):
            starts = starts_of_test(size, length, 16)
            assert starts[0] >= 0
            assert starts[-1] + length == size - 1


def test_training_windows_can_be_moved():
    for size in range(9, 60):
        starts = training_starts(size, 8)
        assert starts[0] == 0
        assert starts[-1] + 8 < size
        if size >= 16:
            assert len(starts) == size // 8 - 1


def test_targets_are_the_next_tokens():
    part = Part([torch.arange(10, 20), torch.arange(5)])
    tokens, targets = part.batch(4, [0, 8], shift=2)
    assert tokens.tolist() == [[12, 13, 14, 15], [0, 1, 2, 3]]
    assert targets.tolist() == [[13, 14, 15, 16], [1, 2, 3, 4]]
    assert tokens.dtype == targets.dtype == torch.int64


def test_packed_documents_end_without_a_target():
    part = Part([torch.arange(3), torch.arange(10, 12), torch.arange(20, 24)], packed=True)
    tokens, targets, documents = part.batch(8, [0])
    assert tokens.tolist() == [[0, 1, 2, 10, 11, 20, 21, 22]]
    assert targets.tolist() == [[1, 2, IGNORED, 11, IGNORED, 21, 22, 23]]
    assert documents.tolist() == [[0, 0, 0, 1, 1, 2, 2, 2]]


def test_batches_of_an_evaluation_have_as_many_tokens_at_any_length():
    part = Part([torch.arange(20000)])
    for length, expected in ((64, 64), (1024, 4), (8192, 3)):
        tokens, _ = next(iter(in_order(part, length, range(0, 10000, 10), 3, 0)))
        assert tokens.shape == (expected, length)
