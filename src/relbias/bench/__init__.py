"""What relations cost: time, memory and error of every implementation beside plain attention."""

from relbias.bench.cases import CASES, Case, Problem
from relbias.bench.rows import LEVELS, Row, benchmark

__all__ = ["CASES", "LEVELS", "Case", "Problem", "Row", "benchmark"]
