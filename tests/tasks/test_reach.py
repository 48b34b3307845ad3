import pytest
import torch

from relbias.encodings import T5
from relbias.models import LanguageModel
from relbias.tasks.reach import unreached


def model(encoding, **options):
    return LanguageModel(encoding, num_tokens=5, dim=16, depth=2, num_heads=2, **options)


def t5(bidirectional, num_buckets=32, max_distance=128):
    def build(heads, size, relation):
        options = {"num_buckets": num_buckets, "max_distance": max_distance, "bidirectional": bidirectional}
        return T5(heads, size, relation, **options)

    return build


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("length", [1, 8, 64, 91])
def test_the_entries_that_get_a_gradient_are_those_that_are_reached(bidirectional, length):
    """Of training by a loss on every token; the number in the line is that of the table's columns that move."""
    torch.manual_seed(0)
    network = model(t5(bidirectional))
    network(torch.randint(5, (1, length))).square().sum().backward()
    moved = int((network.blocks[0].attention.encoding.table.grad != 0).any(0).sum())
    lines = unreached(network, length)
    total = 16 if bidirectional else 32
    if length == 1:  # a softmax of one logit does not depend on it
        moved = 1
    expected = f"t5: {moved} of {total} buckets for earlier tokens are reached at length {length}; longer windows use"
    assert [line[: len(expected)] for line in lines] == ([expected] if moved < total else [])


def test_what_is_reached_or_has_no_buckets_is_not_told():
    for encoding in ("shaw", "alibi", "none", "fire", "transformer_xl", "cope", "rope"):
        assert unreached(model(encoding), 64) == []
    assert unreached(model("learned", max_length=64), 64) == []
    assert unreached(model(t5(True)), 92) == []
    assert unreached(model(t5(True)), 91) != []
    assert len(unreached(model("shaw"), 16)) == 1


def test_buckets_of_projected_and_gated_tables():
    (line,) = unreached(model("deberta"), 64)
    assert line.startswith("deberta: 64 of 256 buckets")
    (line,) = unreached(model("wavlm"), 64)
    assert line.startswith("wavlm: 64 of 160 buckets")


def test_a_window_that_is_never_longer_reaches_all():
    assert unreached(model("t5", window=64), 64, window=64) == []
    (line,) = unreached(model("t5", window=80), 64, window=80)
    assert line.startswith("t5: 14 of 15 buckets")


def test_the_parts_of_a_sum_are_told():
    (line,) = unreached(model({"near": "shaw", "far": "t5", "turn": "rope"}), 64)
    assert line.startswith("t5: 14 of 16 buckets")
