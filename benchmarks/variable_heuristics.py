"""How often simple rules choose the right variable where a use is hidden, beside which networks stand.

    python benchmarks/variable_heuristics.py
    python benchmarks/variable_heuristics.py --path a/folder

The questions are those of the test part of `relbias.data.MaskedVariables`, by default of the standard library: one read
of a variable is hidden, and all other tokens of the function are known. The rules are

- random: each of the function's own variables is as likely (the expected accuracy);
- nearest: the variable that occurs last before the place, or first after it where none occurs before;
- most frequent: the variable with the most other occurrences, of several the nearest;
- trigram: the variable whose name stood most often in the training part between the same two tokens before and the same
  token after; of names that never did, between the last token before and the token after; then after the last token
  before; then anywhere. Of several, and of names that the training part lacks, the nearest.

The last column is over the questions whose right answer is not self.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from relbias.cli.provenance import commit, machine
from relbias.data import MaskedVariables
from relbias.data.source.batches import Encoded

Rule = Callable[[Encoded, int], str]


def others(encoded: Encoded, token: int) -> list[tuple[int, str]]:
    """The other occurrences of the function's own variables, the nearest first, those before the place before all."""
    own = encoded.function.own
    found = [(place, own.names[number]) for place, number in enumerate(own.numbers.tolist()) if number >= 0]
    before = [each for each in reversed(found) if each[0] < token]
    return [*before, *(each for each in found if each[0] > token)]


def nearest(encoded: Encoded, token: int) -> str:
    """The name of the variable that occurs nearest."""
    return others(encoded, token)[0][1]


def most_frequent(encoded: Encoded, token: int) -> str:
    """The name of the variable that occurs most often."""
    counts = Counter(name for _, name in others(encoded, token))  # of equal counts the first that was met
    return max(counts, key=counts.__getitem__)


class Trigram:
    """Which names stand between which tokens.

    Args:
        functions: those that are counted.
    """

    def __init__(self, functions: Sequence[Encoded]) -> None:
        self.counts: Counter[tuple[str, ...]] = Counter()
        for encoded in functions:
            tokens = encoded.function.source.tokens
            for token in encoded.function.own.reads:
                self.counts.update((*context, tokens[token]) for context in self.contexts(tokens, token))

    @staticmethod
    def contexts(tokens: Sequence[str], token: int) -> Iterator[tuple[str, ...]]:
        """What surrounds a token, from more to less."""
        second, first = ("", "", *tokens)[token : token + 2]
        after = (*tokens, "")[token + 1]
        yield "both", second, first, after
        yield "around", first, after
        yield "before", first
        yield ("anywhere",)

    def __call__(self, encoded: Encoded, token: int) -> str:
        names = list(dict.fromkeys(name for _, name in others(encoded, token)))
        for context in self.contexts(encoded.function.source.tokens, token):
            best = max(names, key=lambda name: self.counts[*context, name])
            if self.counts[*context, best]:
                return best
        return names[0]


def accuracies(data: MaskedVariables) -> dict[str, tuple[float, float]]:
    """The share of right answers of each rule, of all questions and of those whose answer is not self.

    Args:
        data: set up.
    """
    rules: dict[str, Rule] = {
        "nearest": nearest,
        "most frequent": most_frequent,
        "trigram": Trigram(data.functions_of("train")),
    }
    right: dict[str, list[float]] = {name: [] for name in ("random", *rules)}
    without_self = []
    for sample in range(len(data.samples["test"])):
        encoded, token = data.sample("test", sample)
        name = encoded.function.source.tokens[token]
        without_self.append(name != "self")
        right["random"].append(1 / len(encoded.function.own.names))
        for rule, choose in rules.items():
            right[rule].append(float(choose(encoded, token) == name))
    count = max(1, sum(without_self))
    return {
        rule: (sum(each) / len(each), sum(one for one, kept in zip(each, without_self, strict=True) if kept) / count)
        for rule, each in right.items()
    }


def main(argv: list[str]) -> int:
    """Print the table.

    Args:
        argv: the arguments of the command line.

    Returns:
        The exit code, 0.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--path", help="a folder of Python files (default: the standard library)")
    parser.add_argument("--max-tokens", type=int, default=128, help="of a function (default: 128)")
    parser.add_argument("--cache", help="a folder for parsed files (default: the user's own)")
    options = parser.parse_args(argv)
    data = MaskedVariables(options.path, max_tokens=options.max_tokens, cache=options.cache)
    data.setup()
    print("| rule | accuracy | without self |\n|---|---|---|")
    for rule, shares in accuracies(data).items():
        print(f"| {rule} | {' | '.join(f'{share:.3f}' for share in shares)} |")
    print(f"\n{len(data.samples['test'])} questions, {data.fingerprint}. {machine()}. Commit {commit()}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
