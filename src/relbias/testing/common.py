"""What is tested of every encoding, whether it gives terms or is applied at the input."""

from __future__ import annotations

import copy
import inspect
import io
import unittest
from typing import Any, ClassVar

import torch

import relbias as rb
from relbias.relations import Grid, Hops, HopsIndex, Pairs, Relation, Sequence, Volume, VolumeIndex
from relbias.testing.cases import BATCH, HEAD_DIM, HEADS
from relbias.testing.values import random_values


class CommonTestCase(unittest.TestCase):
    """Construction, registration and state."""

    __test__ = False

    encoding: ClassVar[type[rb.Encoding]]
    options: ClassVar[dict[str, Any]] = {}
    relation: ClassVar[Relation] = Sequence()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.__test__ = hasattr(cls, "encoding")

    def setUp(self) -> None:
        torch.manual_seed(0)

    def make(self, dtype: torch.dtype = torch.float64, **options: Any) -> Any:
        """The encoding under test, its parameters random and so large that they matter."""
        encoding = type(self).encoding(HEADS, HEAD_DIM, self.relation, **{**self.options, **options}).to(dtype)
        for parameter in encoding.parameters():
            torch.nn.init.normal_(parameter)
        return encoding

    def make_index(self, n: int, m: int) -> Any:
        """An index of N queries and M keys; a grid or volume is the relation's own, or one patch for one token."""
        if isinstance(self.relation, Grid):
            return self.relation(1, 1) if n == 1 else self.relation()
        if isinstance(self.relation, Volume):
            return self.relation(1, 1, 1) if n == 1 else self.relation()
        values = self.pair_values(n, m)
        return self.relation(n, m) if values is None else self.relation(*values)

    def pair_values(self, n: int, m: int) -> tuple[torch.Tensor, ...] | None:
        """Tensors from which a pairwise relation makes an index of N queries and M keys; None for a positional one.

        Those of `random_values`; override it for a relation of your own.
        """
        return random_values(self.relation, BATCH, n, m)

    def test_registered_under_its_name(self) -> None:
        cls = type(self).encoding
        self.assertIn(cls.name, rb.list_encodings())
        created = rb.create_encoding(cls.name, HEADS, HEAD_DIM, self.relation, **self.options)
        self.assertIs(type(created), cls)

    def test_refuses_other_relations(self) -> None:
        cls = type(self).encoding
        for relation in (Sequence(), Grid(3, 3), Volume(2, 2, 2), Pairs(4), Hops(3)):
            if not isinstance(relation, cls.relations):
                with self.subTest(relation=relation), self.assertRaisesRegex(ValueError, type(relation).__name__):
                    cls(HEADS, HEAD_DIM, relation, **self.options)

    def test_saves_its_parameters_and_nothing_else(self) -> None:
        encoding = self.make()
        self.assertEqual(set(encoding.state_dict()), {name for name, _ in encoding.named_parameters()})
        file = io.BytesIO()
        torch.save(encoding.state_dict(), file)
        file.seek(0)
        other = self.make()
        other.load_state_dict(torch.load(file, weights_only=True))
        for mine, theirs in zip(encoding.parameters(), other.parameters(), strict=True):
            self.assertTrue(torch.equal(mine, theirs))

    def test_meta_device_then_to_empty(self) -> None:
        cls = type(self).encoding
        with torch.device("meta"):
            encoding = cls(HEADS, HEAD_DIM, self.relation, **self.options)
        self.assertTrue(all(parameter.is_meta for parameter in encoding.parameters()))
        encoding.to_empty(device="cpu")
        torch.manual_seed(1)
        encoding.reset_parameters()
        torch.manual_seed(1)
        expected = cls(HEADS, HEAD_DIM, self.relation, **self.options)
        for mine, theirs in zip(encoding.parameters(), expected.parameters(), strict=True):
            self.assertTrue(torch.equal(mine, theirs), "reset_parameters() must give the start values")

    def takes_strength(self) -> bool:
        """Whether the class has the option; all of the library's do."""
        return "strength" in inspect.signature(type(self).encoding).parameters

    def test_learns_a_strength(self) -> None:
        if not self.takes_strength():
            return
        encoding = self.make(strength=0.1)
        encoding.reset_parameters()
        self.assertTrue(torch.equal(encoding.strength, torch.full((HEADS,), 0.1, dtype=torch.float64)))
        self.assertIsNone(self.make().strength)

    def test_copies_are_independent(self) -> None:
        encoding = self.make()
        before = [parameter.detach().clone() for parameter in encoding.parameters()]
        for parameter in copy.deepcopy(encoding).parameters():
            torch.nn.init.zeros_(parameter)
        for mine, kept in zip(encoding.parameters(), before, strict=True):
            self.assertTrue(torch.equal(mine, kept))

    def same_values(self, half: Any, full: Any) -> bool:
        """Whether two tensors, or two nothings, are equal bit for bit."""
        if isinstance(half, torch.Tensor) and isinstance(full, torch.Tensor):
            return torch.equal(half, full)
        return half is None and full is None

    def loop_offset(self, index: Any, i: int, j: int) -> Any:
        """The relation of query i and key j, for formulas in loops.

        Returns:
            On a sequence the offset j - i of their positions; on a grid (dy, dx), on a volume (dz, dy, dx) or, with a
            prefix token, a pair of names such as ("prefix 0", "patch"); of hops or pairs the number given.
        """
        n, m = index.shape
        if isinstance(self.relation, Sequence):
            return j - (i + m - n)
        if isinstance(index, rb.relations.GridIndex):
            p, width = index.prefix_tokens, index.width
            if i < p or j < p:
                return tuple(f"prefix {t}" if t < p else "patch" for t in (i, j))
            (yi, xi), (yj, xj) = divmod(i - p, width), divmod(j - p, width)
            return yi - yj, xi - xj
        if isinstance(index, VolumeIndex):
            p, (_, height, width) = index.prefix_tokens, index.sizes
            if i < p or j < p:
                return tuple(f"prefix {t}" if t < p else "patch" for t in (i, j))
            query, key = (((t - p) // (height * width), (t - p) // width % height, (t - p) % width) for t in (i, j))
            return tuple(a - b for a, b in zip(query, key, strict=True))
        values = index.distances if isinstance(index, HopsIndex) else index.values
        return values[:, 0, i, j]
