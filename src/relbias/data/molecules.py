"""Molecules as graphs, read from SMILES into memory: those that come with RDKit, and those of CSV files."""

from __future__ import annotations

import csv
import math
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from relbias._extras import extra
from relbias._nearest import nearest
from relbias.relations.base import check_size

with extra("graph"):
    from rdkit import Chem, RDConfig
    from rdkit.rdBase import BlockLogs
    from torch_geometric.data import Data, InMemoryDataset

ELEMENTS = ("H", "B", "C", "N", "O", "F", "Si", "P", "S", "Cl", "As", "Se", "Br", "Sn", "I")
"""The elements with a code of their own, 1 for the first; all others share the code 0: 16 codes."""
BONDS = ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC")
"""RDKit's bond types with a code of their own, 0 for the first; all others share the code 4: 5 codes."""
PARTS = ("train", "val", "test")


def molecule(smiles: str) -> Data | None:
    """The graph of a molecule: its heavy atoms and the bonds between them; hydrogens are implicit.

    Args:
        smiles: such as ``"CCO"``; several fragments make a graph that is not connected.

    Returns:
        x (V, 1) int64, the element's code in :data:`ELEMENTS`, and nothing else that is known of the atom; edge_index
        (2, E), each bond in both directions; edge_attr (E,) int64, its code in :data:`BONDS`. None where RDKit cannot
        read it, or there is no atom.

    Example:
        >>> graph = molecule("C=O")
        >>> graph.x.flatten().tolist(), graph.edge_index.tolist(), graph.edge_attr.tolist()
        ([3, 5], [[0, 1], [1, 0]], [1, 1])
    """
    with BlockLogs():  # RDKit would print lines for each molecule that it cannot read
        found = Chem.MolFromSmiles(smiles)
    if found is None or not found.GetNumAtoms():
        return None
    atoms = [_element(atom.GetSymbol()) for atom in found.GetAtoms()]
    edges: list[tuple[int, int]] = []
    types: list[int] = []
    for bond in found.GetBonds():
        i, j = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        name = bond.GetBondType().name
        edges += [(i, j), (j, i)]
        types += 2 * [BONDS.index(name) if name in BONDS else len(BONDS)]
    return Data(
        x=torch.tensor(atoms)[:, None],
        edge_index=torch.tensor(edges, dtype=torch.int64).view(-1, 2).t().contiguous(),
        edge_attr=torch.tensor(types, dtype=torch.int64),
    )


def _element(symbol: str) -> int:
    return ELEMENTS.index(symbol) + 1 if symbol in ELEMENTS else 0


class NCIMolecules(InMemoryDataset):
    """The molecules of the NCI that the package rdkit ships with their polar surface area; nothing is downloaded.

    These are the first 5,000 of the NCI's open database, less one without a surface area and eight that RDKit cannot
    read: 4,991 molecules of 2 to 122 heavy atoms, some in several fragments. The target is the
    topological polar surface area (TPSA, in square angstroms), a sum over the surroundings of the polar atoms, that
    came with them (P. Ertl et al., J. Med. Chem. 43:3714, 2000, https://doi.org/10.1021/jm000942e).

    Args:
        limit: only so many, from the first; None for all.

    Raises:
        ValueError: a limit below 1, or a package rdkit without these files.

    Example:
        >>> data = NCIMolecules(limit=20)
        >>> len(data), data[0].num_nodes, round(data[0].y.item(), 2)
        (20, 9, 34.14)
    """

    def __init__(self, limit: int | None = None) -> None:
        super().__init__()
        if limit is not None:
            check_size("limit", limit, 1)
        path = Path(RDConfig.RDDataDir) / "NCI" / "first_5k.tpsa.csv"
        if not path.is_file():
            raise ValueError(f"the installed rdkit has no {path}; install the package from PyPI: pip install rdkit")
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
        rows = (line.rpartition(",") for line in lines[:limit])
        graphs = _graphs((smiles, torch.tensor([[float(area)]])) for smiles, _, area in rows)
        _report(str(path), len(lines[:limit]), len(graphs))
        self.data, self.slices = self.collate(graphs)


class SmilesCSV(InMemoryDataset):
    """Molecules of one CSV file or of three, for training, validation and test.

    Atoms and bonds are those of :func:`molecule`. A molecule that RDKit cannot read is left out, and a warning says how
    many are.

    Args:
        path: a file; a folder with three, whose names end with train.csv, val.csv and test.csv; or a mapping from
            "train", "val" and "test" to files.
        target_columns: the columns of the targets. An empty cell is NaN, a label that is missing.
        smiles_column: the column of the molecules.

    Raises:
        ValueError: a file or column is missing, a target is not a number, or RDKit can read no molecule.

    Example:
        >>> SmilesCSV("absent.csv", ["solubility"])
        Traceback (most recent call last):
        ...
        ValueError: there is no file absent.csv; give a CSV file, or a folder with files that end with train.csv, ...
    """

    def __init__(
        self, path: str | dict[str, str], target_columns: Sequence[str], smiles_column: str = "smiles"
    ) -> None:
        super().__init__()
        if isinstance(target_columns, str) or not target_columns:
            raise ValueError(f"target_columns is {target_columns!r}, expected a list of at least one column")
        parts = _files(path)
        graphs: list[Data] = []
        self._counts: list[int] = []
        for file in parts.values():
            rows = _read(file, smiles_column, target_columns)
            read = _graphs(rows)
            _report(str(file), len(rows), len(read))
            self._counts.append(len(read))
            graphs += read
        self._names = list(parts)
        self.data, self.slices = self.collate(graphs)

    def get_idx_split(self) -> dict[str, Tensor] | None:
        """The positions of the molecules of each file by "train", "val" and "test"; None for one file."""
        if self._names == [""]:
            return None
        positions = torch.arange(sum(self._counts)).split(self._counts)
        return dict(zip(self._names, positions, strict=True))


def _files(path: str | dict[str, str]) -> dict[str, Path]:
    """The files by part, "" for the only one."""
    if isinstance(path, dict):
        if set(path) != set(PARTS):
            raise ValueError(f"path has {', '.join(path) or 'nothing'}, expected the keys {', '.join(PARTS)}")
        files = {part: Path(path[part]) for part in PARTS}
    elif Path(path).is_dir():
        files = {}
        for part in PARTS:
            found = sorted(Path(path).glob(f"*{part}.csv"))
            if len(found) != 1:
                names = ", ".join(file.name for file in found) or "none"
                raise ValueError(f"{path} has {len(found)} files that end with {part}.csv ({names}), expected one")
            files[part] = found[0]
    else:
        files = {"": Path(path)}
    for file in files.values():
        if not file.is_file():
            raise ValueError(
                f"there is no file {file}; give a CSV file, or a folder with files that end with train.csv, val.csv "
                "and test.csv"
            )
    return files


def _read(path: Path, smiles_column: str, target_columns: Sequence[str]) -> list[tuple[str, Tensor]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        for column in (smiles_column, *target_columns):
            if column not in (reader.fieldnames or ()):
                raise ValueError(f"{path} has no column {column!r}; {nearest(column, reader.fieldnames or ())}")
        rows = []
        for row in reader:
            targets = [_number(row[column], column, f"{path}, line {reader.line_num}") for column in target_columns]
            rows.append((row[smiles_column] or "", torch.tensor([targets])))
    return rows


def _number(text: str | None, column: str, where: str) -> float:
    if not (text or "").strip():
        return math.nan
    try:
        return float(text)  # ty: ignore[invalid-argument-type]
    except ValueError:
        raise ValueError(f"{where}: {column} is {text!r}, expected a number or nothing") from None


def _graphs(rows: Iterable[tuple[str, Tensor]]) -> list[Data]:
    """The molecules that can be read, with their targets, (1, T) each, as y."""
    graphs = []
    for smiles, targets in rows:
        graph = molecule(smiles)
        if graph is not None:
            graph.y = targets
            graphs.append(graph)
    return graphs


def _report(source: str, num_rows: int, num_graphs: int) -> None:
    if not num_graphs:
        raise ValueError(f"{source} has {num_rows} rows, and RDKit can read the SMILES of none")
    if num_graphs < num_rows:
        warnings.warn(
            f"{source}: {num_rows - num_graphs} of {num_rows} molecules are left out: RDKit cannot read them",
            stacklevel=3,
        )
