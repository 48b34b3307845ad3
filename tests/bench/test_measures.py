"""The clock and the memory count, against calls whose cost is known."""

import time

import pytest
import torch

from relbias.bench.memory import peak_memory
from relbias.bench.timing import interleaved, seconds

CPU = torch.device("cpu")
MIB = 2**20


def test_peak_memory_counts_the_highest_point_and_no_more():
    def run():
        first = torch.empty(MIB, dtype=torch.uint8)
        del first
        both = torch.empty(2 * MIB, dtype=torch.uint8), torch.empty(3 * MIB, dtype=torch.uint8)
        del both
        return torch.empty(4 * MIB, dtype=torch.uint8)

    before = torch.empty(7 * MIB, dtype=torch.uint8)  # what lies there already does not count
    assert peak_memory(run, CPU) == 5 * MIB
    del before


def test_peak_memory_counts_what_is_kept_for_the_backward_pass():
    x = torch.randn(64, 64, requires_grad=True)
    size = 64 * 64 * 4

    def run():
        torch.autograd.grad(x.exp().exp().exp().sum(), x)

    kept = peak_memory(run, CPU)
    assert kept >= 3 * size
    with torch.no_grad():
        assert peak_memory(lambda: x.exp().exp().exp(), CPU) == 2 * size
    assert kept < 8 * size


def test_process_time_leaves_sleep_out():
    def wait():
        time.sleep(0.05)

    def work():
        end = time.process_time() + 0.05
        while time.process_time() < end:
            pass

    assert seconds(wait, 1, CPU) < 0.02
    assert seconds(work, 1, CPU) == pytest.approx(0.05, abs=0.02)


def test_rounds_are_interleaved(monkeypatch):
    calls = []
    monkeypatch.setattr("relbias.bench.timing._SHORTEST", 0.0)
    threads = torch.get_num_threads()
    times = interleaved([lambda: calls.append("a"), lambda: calls.append("b")], 3, CPU)
    assert "".join(calls) == "ab" + "ab" + "ab" + "ba" + "ab"  # warm, count, three rounds
    assert [len(samples) for samples in times] == [3, 3]
    assert torch.get_num_threads() == threads


def test_short_calls_are_repeated(monkeypatch):
    monkeypatch.setattr("relbias.bench.timing._SHORTEST", 0.01)
    calls = []

    def work():
        calls.append(1)
        end = time.process_time() + 0.001
        while time.process_time() < end:
            pass

    ((each,),) = interleaved([work], 1, CPU)
    assert 2 + 4 <= len(calls) <= 2 + 10
    assert each == pytest.approx(0.001, rel=0.5)
