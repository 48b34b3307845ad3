"""What the data modules of the uses of variables have in common."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import sysconfig
from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler, Sampler
from tqdm import tqdm

from relbias.data.buckets import BucketOrder
from relbias.data.parts import NAMES
from relbias.data.source.batches import Encoded
from relbias.data.source.edges import EDGE_TYPES
from relbias.data.source.folder import SourceFolder, parse_folder
from relbias.data.source.functions import FileFunction, LeftOut, part_functions
from relbias.data.source.node_types import NodeTypes
from relbias.data.source.parsed import KINDS
from relbias.data.source.vocabulary import SourceVocabulary
from relbias.data.source_reader import SourceReader
from relbias.relations.base import check_size

APPLICATIONS_AND_TESTS = ("idlelib", "lib2to3", "turtledemo", "idle_test", "test", "tests")
"""Folders in that of the standard library which are no modules to be imported."""
_OTHERS = ("__pycache__", "dist-packages", "site-packages")


class VariableUses(SourceReader):
    """The functions of Python files, and each place in them that reads one of the function's own variables: a sample.

    Functions in functions and methods are functions too. Of those with the same tokens one is kept. A file belongs to
    the test part if the SHA-256 of its content, as a fraction of all, is below 0.1, to the validation below 0.2, and
    else to the training. What is left out is counted, and printed to the standard error once.

    A batch is a dictionary of tensors, of B samples, N tokens and V nodes of the syntax tree at most:

    - words: (B, N, W) int64, the words of each token by :class:`~relbias.data.source.vocabulary.SourceVocabulary`, 0
      where it has no more.
    - lengths: (B,) int64, in tokens.
    - parents: (B, V) int64, the node above each node, -1 for roots and padding.
    - node_types: (B, V) int64, by :class:`~relbias.data.source.node_types.NodeTypes`, 0 for padding.
    - node_of_token: (B, N) int64, the lowest node that each token lies in, -1 for padding.
    - edges: (B, N, N) int32, sets of types as in :class:`~relbias.relations.EdgeSets`: bit t for an edge from token i
      to j of the t-th of the T = 6 :data:`~relbias.data.source.edges.EDGE_TYPES`, bit T + t for one from j to i.
    - variables: (B, N) int64, the number, from 0, of the function's own variable that each token is an occurrence of,
      or -1. Variables of one name have one number.

    A subclass defines `rows`, which adds what is asked.

    Args:
        path: a folder of Python files, or one file; None for the standard library of the running Python without its
            tests and the applications in it.
        min_tokens: the fewest of a function.
        max_tokens: the most.
        min_variables: the fewest variables of a function's own.
        vocabulary_size: how many words have numbers at most, padding and the unknown ones included; they are those of
            the training part.
        max_words: W, how many words of a name are kept.
        batch_size: samples in a batch.
        cache: a folder where parsed files are kept; None for one in the user's own, $XDG_CACHE_HOME or ~/.cache.
        num_workers: processes that load batches.
        fingerprint: of the functions that are expected; None for those that are found. `relbias fit` keeps in the run
            folder what it found, so that files that have changed are noticed.

    Attributes:
        vocabulary: of the training part, once set up or loaded with a checkpoint; None before.
        types: of the nodes, likewise.
        functions: by train, val and test, lists of :class:`~relbias.data.source.batches.Encoded`, once set up.
        samples: by the same names, lists of the number of a function and of a token in it that is asked about.
        left_out: what is not among the functions, and why.

    Raises:
        ValueError: an argument out of its range.
    """

    left_out: LeftOut

    def __init__(
        self,
        path: str | None = None,
        min_tokens: int = 8,
        max_tokens: int = 128,
        min_variables: int = 2,
        vocabulary_size: int = 2000,
        max_words: int = 4,
        batch_size: int = 32,
        cache: str | None = None,
        num_workers: int = 0,
        fingerprint: str | None = None,
    ) -> None:
        super().__init__(max_tokens, max_words)
        check_size("min_tokens", min_tokens, 1)
        check_size("max_tokens", max_tokens, min_tokens)
        check_size("min_variables", min_variables, 2)
        check_size("vocabulary_size", vocabulary_size, len(KINDS) + 1)
        check_size("max_words", max_words, 1)
        check_size("batch_size", batch_size, 1)
        check_size("num_workers", num_workers, 0)
        self.path = None if path is None else Path(path)
        self.min_tokens, self.min_variables = min_tokens, min_variables
        self.vocabulary_size = vocabulary_size
        self.batch_size = batch_size
        self.cache = None if cache is None else Path(cache)
        self.num_workers = num_workers
        self.fingerprint = fingerprint
        self.functions: dict[str, list[Encoded]] | None = None
        self.samples: dict[str, list[tuple[int, int]]] = {}
        self._network: Any = None

    def samples_of(self, part: str, functions: Sequence[FileFunction]) -> list[tuple[int, int]]:
        """The samples of a part: each function's number with each token that reads one of its own variables."""
        return [(number, token) for number, function in enumerate(functions) for token in function.own.reads]

    @abstractmethod
    def rows(self, part: str, samples: Sequence[int], sampler: DistributedSampler | None) -> dict[str, Tensor]:
        """A batch.

        Args:
            part: train, val or test.
            samples: the places in `self.samples[part]`.
            sampler: of the training, for random numbers; None in an evaluation.
        """

    def sample(self, part: str, sample: int) -> tuple[Encoded, int]:
        """A function and the token in it that is asked about.

        Args:
            part: train, val or test.
            sample: its place in `self.samples[part]`.

        Raises:
            ValueError: the data is not set up.
        """
        functions = self.functions_of(part)
        number, token = self.samples[part][sample]
        return functions[number], token

    def functions_of(self, part: str) -> list[Encoded]:
        """The functions of a part.

        Raises:
            ValueError: the data is not set up.
        """
        if self.functions is None:
            raise ValueError("call setup() first")
        return self.functions[part]

    @property
    def source(self) -> str:
        """What messages call the files."""
        return f"the library of Python {platform.python_version()}" if self.path is None else str(self.path)

    @property
    def found(self) -> dict[str, Any]:
        """The arguments that :meth:`setup` found, for the configuration of a run."""
        return {} if self.fingerprint is None else {"fingerprint": self.fingerprint}

    def adapt_to(self, task: Any) -> None:
        """Remembers a task's network, which may say how many words and types of nodes and of edges it knows.

        Args:
            task: whose `network`, where it has one, may have `num_words`, `node_types` and `edge_types`.
        """
        self._network = getattr(task, "network", None)

    def _check_network(self, name: str, needed: int) -> None:
        known = getattr(self._network, name, None)
        if known is not None and known < needed:
            raise ValueError(
                f"{self.source} needs a network with {name} {needed}, and it is {known}; give "
                f"--model.init_args.network.init_args.{name} {needed}"
            )

    def setup(self, stage: str | None = None) -> None:
        """Parses the files, or takes what was kept of them, and chooses the functions.

        Raises:
            ValueError: there are none, a part has none, they are not those expected, or the network knows
                fewer words or types.
        """
        if self.functions is not None:
            return
        parts, left_out = part_functions(self._parsed(), self.min_tokens, self.max_tokens, self.min_variables)
        for name in NAMES:
            if not parts[name]:
                raise ValueError(
                    f"the {name} part of {self.source} has no function of {self.min_tokens} to {self.max_tokens} "
                    f"tokens and {self.min_variables} variables or more; all its files have "
                    f"{left_out.kept} functions, and a hash of its content says to which part a file belongs: give "
                    "more files"
                )
        found = _fingerprint(parts)
        if self.fingerprint not in (None, found):
            raise ValueError(
                f"{self.source} has {found}, expected are {self.fingerprint}: the files have changed; give those of "
                "the run, or --data.init_args.fingerprint null for a new run"
            )
        training = [one.source for one in parts["train"]]
        vocabulary, types = SourceVocabulary(training, self.vocabulary_size, self.max_words), NodeTypes(training)
        edges = 2 * len(EDGE_TYPES)
        for name, needed in (("num_words", len(vocabulary)), ("node_types", len(types)), ("edge_types", edges)):
            self._check_network(name, needed)
        self.vocabulary, self.types, self.left_out, self.fingerprint = vocabulary, types, left_out, found
        self.functions = {name: [Encoded.of(one, vocabulary, types) for one in parts[name]] for name in NAMES}
        self.samples = {name: self.samples_of(name, parts[name]) for name in NAMES}
        if self._is_first_process():
            print(f"{self.source}: {left_out}", file=sys.stderr, flush=True)

    def _is_first_process(self) -> bool:
        return self.trainer is None or self.trainer.is_global_zero

    def _parsed(self) -> SourceFolder:
        """All files, whose progress is shown on a terminal."""
        root = Path(sysconfig.get_path("stdlib")) if self.path is None else self.path
        without = (*APPLICATIONS_AND_TESTS, *_OTHERS) if self.path is None else ()
        bar = tqdm(desc="parsing", unit="files", leave=False, disable=None if self._is_first_process() else True)

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        with bar:
            return parse_folder(root, ("python",), self._cache(), progress, without)

    def _cache(self) -> Path:
        own = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        return self.cache or Path(own) / "relbias" / "source"

    def train_dataloader(self) -> DataLoader:
        """Training batches of similar lengths, in an order that depends on the seed and the epoch only."""
        return self._loader("train", BucketOrder(self._lengths("train"), self.batch_size, self.trainer))

    def val_dataloader(self) -> DataLoader:
        """Validation samples, from the shortest function to the longest."""
        return self._loader("val", None)

    def test_dataloader(self) -> DataLoader:
        """Test samples, from the shortest function to the longest."""
        return self._loader("test", None)

    def predict_dataloader(self) -> DataLoader:
        """Test samples, from the shortest function to the longest."""
        return self._loader("test", None)

    def _lengths(self, part: str) -> list[int]:
        functions = self.functions_of(part)
        return [len(functions[number]) for number, _ in self.samples[part]]

    def _loader(self, part: str, sampler: BucketOrder | None) -> DataLoader:
        lengths = self._lengths(part)
        samples: Any = range(len(lengths)) if sampler else torch.tensor(lengths).argsort(stable=True).tolist()
        make: Any = partial(self.rows, part, sampler=sampler)
        order: Sampler | None = sampler
        return DataLoader(
            dataset=samples,
            batch_size=self.batch_size,
            sampler=order,
            num_workers=self.num_workers,
            collate_fn=make,
        )


def _fingerprint(parts: dict[str, list[FileFunction]]) -> str:
    hashed = hashlib.sha256()
    for name in NAMES:
        for function in parts[name]:
            hashed.update(f"{name} {len(function.source.tokens)}:{' '.join(function.source.tokens)}".encode())
    return f"{sum(map(len, parts.values()))} functions, sha256 {hashed.hexdigest()[:16]}"
