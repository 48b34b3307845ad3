"""Every case, level, peer and dtype at a tiny size: the rows, their ratios and their errors."""

import math
import sys

import pytest
import torch

import relbias as rb
from relbias.attention.folded import Folded
from relbias.bench import CASES, benchmark
from relbias.bench.attentions import Attentions
from relbias.bench.candidates import DIRECTIONS, Candidate, Exact
from relbias.bench.peers import PEERS
from relbias.relations import Sequence

SHAPES = {"sequence": (1, 2, 16, 8), "long": (1, 2, 16, 8), "grid": (2, 2, 17, 8), "graph": (3, 2, 9, 8)}
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Calls are not repeated: here their times need not be good."""
    monkeypatch.setattr("relbias.bench.timing._SHORTEST", 0.0)


def rows_of(case, encoding, implementations=("folded",), **options):
    return list(benchmark(case, SHAPES[case], encoding, implementations, rounds=2, **options))


@pytest.mark.parametrize("level", ["attention", "layer"])
@pytest.mark.parametrize("case", list(CASES))
def test_cases(case, level):
    rows = rows_of(case, CASES[case].encodings[0], ("folded", "reference"), level=level)
    for direction in DIRECTIONS:
        names = [row.implementation for row in rows if row.direction == direction]
        assert names[:3] == ["plain", "folded", "reference"]
    for row in rows:
        assert (row.case, row.level, row.batch, row.heads, row.tokens, row.head_dim) == (case, level, *SHAPES[case])
        numbers = (row.time_ms, row.time_ratio, row.time_ratio_low, row.time_ratio_high, row.memory_mib)
        assert all(math.isfinite(x) and x > 0.0 for x in (*numbers, row.memory_ratio))
        assert row.time_ratio_low <= row.time_ratio <= row.time_ratio_high
        if row.implementation == "plain":
            assert (row.time_ratio, row.memory_ratio, row.error) == (1.0, 1.0, None)
        if row.implementation in ("folded", "reference"):
            assert 0.0 < row.error < 1e-4
    assert len(rows) == len({(row.implementation, row.direction) for row in rows})


@pytest.mark.parametrize(
    ("case", "encoding", "peers"),
    [
        ("sequence", "t5", {"transformers T5Attention", "x-transformers RelativePositionBias"}),
        ("sequence", "alibi", {"x-transformers AlibiPositionalBias"}),
        ("sequence", "deberta", {"transformers DeBERTa-v2 attention"}),
        ("sequence", "table", set()),
        ("grid", "table", {"timm RelPosAttention"}),
    ],
)
def test_peers_are_layers_of_the_same_width(case, encoding, peers):
    rows = rows_of(case, encoding, level="layer")
    found = {row.implementation for row in rows} - {"plain", "folded"}
    assert found == peers
    assert all(row.error is None and row.time_ms > 0 for row in rows if row.implementation in peers)
    assert {row.implementation for row in rows_of(case, encoding, level="layer", peers=False)} == {"plain", "folded"}


def test_deberta_has_the_buckets_of_ours():
    layer = PEERS["deberta"][0].make(2, 8, Sequence())
    theirs, ours = layer.attention, rb.create_encoding("deberta", 2, 8)
    assert (
        (theirs.position_buckets, theirs.max_relative_positions)
        == (256, 512)
        == (ours.position_buckets, ours.max_relative_positions)
    )
    assert (layer.embeddings.shape, ours.c2p, ours.p2c) == (ours.embeddings.shape, True, True)
    assert not theirs.share_att_key
    assert not ours.share_att_key


def test_a_peer_that_is_not_installed_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "x_transformers", None)
    (row, _) = [row for row in rows_of("sequence", "alibi", level="layer") if "x-trans" in row.implementation]
    assert (row.time_ms, row.note) == (None, "x_transformers is not installed")


def test_masks_made_today_equal_the_reference():
    for case, encoding in (("sequence", "fire"), ("grid", "table"), ("graph", "table")):
        rows = [row for row in rows_of(case, encoding) if "mask" in row.implementation]
        assert [(row.implementation, row.direction) for row in rows] == [
            ("mask", "forward"),
            ("kept mask", "forward"),
            ("mask", "forward + backward"),
        ]
        # The gradients of fire's few parameters are sums that nearly cancel.
        assert all(row.error < (1e-5 if row.direction == "forward" else 1e-3) for row in rows)
    assert not [row for row in rows_of("sequence", "shaw") if "mask" in row.implementation]


def test_half_precision_has_its_own_error():
    low = rows_of("sequence", "t5", dtype=torch.bfloat16)
    assert {row.dtype for row in low} == {"bfloat16"}
    assert all(1e-4 < row.error < 0.1 for row in low if row.implementation == "folded")


def test_a_refusal_is_a_row_without_numbers(monkeypatch):
    # One that computes forward alone.
    monkeypatch.setattr(Folded, "refusal", lambda self, call: "no backward" if torch.is_grad_enabled() else None)
    rows = [row for row in rows_of("sequence", "rope") if row.implementation == "folded"]
    assert [(row.direction, row.note) for row in rows] == [("forward", ""), ("forward + backward", "no backward")]
    assert rows[0].time_ms > 0
    assert (rows[1].time_ms, rows[1].time_ratio, rows[1].memory_mib, rows[1].error) == (None, None, None, None)


def test_only_the_last_queries_of_a_long_sequence_are_compared(monkeypatch):
    group = Attentions(CASES["sequence"].make("sequence", (1, 2, 16, 8)), "t5", torch.float32, CPU)
    whole = group.exact()
    assert whole.queries == 16
    monkeypatch.setattr("relbias.bench.attentions._EXACT_LOGITS", 5 * 2 * 16)
    other = Attentions(CASES["sequence"].make("sequence", (1, 2, 16, 8)), "t5", torch.float32, CPU)
    part = other.exact()
    assert part.queries == 5
    torch.testing.assert_close(part.out, whole.out[:, :, 11:])
    assert not part.grads[0][:, :, :11].any()
    assert other.implementation("folded").error("forward + backward") < 1e-5


@pytest.mark.parametrize("wrong", ["out", "gradient"])
def test_an_error_is_seen(wrong):
    x = torch.randn(4, 8, requires_grad=True)
    grad = torch.ones(4, 8)
    factor = 1.01 if wrong == "gradient" else 1.0

    def call():
        # The gradient alone is wrong where the part without one makes up for the output.
        return x * factor + (x * (1 - factor)).detach() + (0.1 if wrong == "out" else 0.0)

    exact = Exact(2, x.detach().double()[2:], (torch.cat((torch.zeros(2, 8), torch.ones(2, 8))).double(),))
    candidate = Candidate("x", call, [x], grad, lambda: exact)
    assert (candidate.error("forward") > 0.01) == (wrong == "out")
    assert candidate.error("forward + backward") > 0.009


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(ValueError, match=r"case 'grid' cannot measure 't5': .*Grid"):
        rows_of("grid", "t5")
    with pytest.raises(ValueError, match="'sinusoidal' is added to the input"):
        rows_of("sequence", "sinusoidal")
    with pytest.raises(ValueError, match=r"N = S\^2 \+ 1 such as 197; got N = 18"):
        list(benchmark("grid", (1, 2, 18, 8), "table", ["folded"]))
    with pytest.raises(ValueError, match="did you mean 't5'"):
        rows_of("sequence", "t55")


def test_graphs_have_hops_of_every_kind():
    problem = CASES["graph"].make("graph", (3, 2, 60, 8))
    distances = problem.bind(rb.relations.Hops(20)).distances
    assert distances.shape == (3, 1, 60, 60)
    assert {-1, 0, 1, 20, 21} <= set(distances.unique().tolist())
    assert torch.equal(distances, distances.mT)
    assert not torch.equal(distances[0], distances[1])
    # A shortest path is no longer than one by way of any third node.
    inner = distances[:, 0, :-1, :-1]
    assert bool((inner[:, :, :, None] <= inner[:, :, None] + inner[:, None]).all())


def test_sequences_take_a_table_with_a_limit():
    problem = CASES["sequence"].make("sequence", (1, 2, 16, 8))
    assert problem.encoding("table").relation == Sequence(max_distance=128)
