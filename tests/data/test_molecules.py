"""Molecules from SMILES."""

import pytest
import torch
from rdkit import Chem
from torch_geometric.utils import from_smiles

from relbias.data.molecules import BONDS, ELEMENTS, NCIMolecules, SmilesCSV, molecule

SMILES = ["C=O", "CC(=O)Oc1ccccc1C(=O)O", "[Na+].[Cl-]", "C", "C#N", "[2H]O[2H]", "[Pt](Cl)(Cl)(N)N", "C[N+](C)(C)C.O"]


@pytest.mark.parametrize("smiles", SMILES)
def test_a_molecule_is_that_of_pyg(smiles):
    own, other = molecule(smiles), from_smiles(smiles)
    symbols = [Chem.GetPeriodicTable().GetElementSymbol(int(number)) for number in other.x[:, 0]]
    assert own.x.flatten().tolist() == [ELEMENTS.index(name) + 1 if name in ELEMENTS else 0 for name in symbols]
    kinds = {1: "SINGLE", 2: "DOUBLE", 3: "TRIPLE", 12: "AROMATIC"}  # PyG's numbers of bond types
    theirs = {
        (int(i), int(j)): BONDS.index(kinds[int(bond)])
        for (i, j), bond in zip(other.edge_index.t(), other.edge_attr[:, 0], strict=True)
    }
    edges = [tuple(edge) for edge in own.edge_index.t().tolist()]
    assert dict(zip(edges, own.edge_attr.tolist(), strict=True)) == theirs
    assert (own.x.dtype, own.edge_index.shape[0], own.edge_attr.dtype) == (torch.int64, 2, torch.int64)


@pytest.mark.parametrize("smiles", ["", "C(", "not a molecule", "c1ccc"])
def test_what_is_no_molecule_is_none(smiles, capfd):
    assert molecule(smiles) is None
    assert capfd.readouterr().err == ""


def test_other_bonds_share_a_code():
    assert molecule("[NH3]->[Pt]").edge_attr.tolist() == [len(BONDS)] * 2


def test_the_molecules_of_rdkit():
    data = NCIMolecules(limit=300)
    assert len(data) == 300
    # 1,4-benzoquinone with a methyl group: two carbonyl groups of 17.07 square angstroms each in Ertl's table
    assert data[0].y.tolist() == [[pytest.approx(34.14)]]
    assert int(data.x.max()) < 16
    assert len({graph.num_nodes for graph in data}) > 20
    with pytest.raises(ValueError, match="limit must be an integer of at least 1, got 0"):
        NCIMolecules(limit=0)


@pytest.fixture
def folder(tmp_path):
    for part, rows in {"train": "CC,1,0\nC(,2,1\nO,,1\n", "val": "C,3,1\n", "test": "N,4,0\nCCO,5,\n"}.items():
        (tmp_path / f"own_{part}.csv").write_text(f"smiles,first,second\n{rows}")
    return tmp_path


def test_csv_files_of_three_parts(folder):
    with pytest.warns(UserWarning, match=r"own_train.csv: 1 of 3 molecules are left out: RDKit cannot read them"):
        data = SmilesCSV(str(folder), ["first", "second"])
    assert {name: part.tolist() for name, part in data.get_idx_split().items()} == {
        "train": [0, 1],
        "val": [2],
        "test": [3, 4],
    }
    assert data.y.nan_to_num(-1).tolist() == [[1, 0], [-1, 1], [3, 1], [4, 0], [5, -1]]


def test_one_csv_file_has_no_parts(folder):
    data = SmilesCSV(str(folder / "own_test.csv"), ["first"])
    assert (len(data), data.get_idx_split()) == (2, None)


def test_csv_files_that_do_not_fit(folder):
    with pytest.raises(ValueError, match=r"own_val.csv has no column 'frst'; did you mean 'first'\?"):
        SmilesCSV(str(folder / "own_val.csv"), ["frst"])
    (folder / "words.csv").write_text("smiles,first\nCC,high\n")
    with pytest.raises(ValueError, match=r"words.csv, line 2: first is 'high', expected a number or nothing"):
        SmilesCSV(str(folder / "words.csv"), ["first"])
    (folder / "none.csv").write_text("smiles,first\nC(,1\n")
    with pytest.raises(ValueError, match="has 1 rows, and RDKit can read the SMILES of none"):
        SmilesCSV(str(folder / "none.csv"), ["first"])
    (folder / "second_train.csv").write_text("smiles,first\nC,1\n")
    with pytest.raises(ValueError, match=r"has 2 files that end with train\.csv"):
        SmilesCSV(str(folder), ["first"])
    with pytest.raises(ValueError, match="expected the keys train, val, test"):
        SmilesCSV({"train": "a.csv"}, ["first"])
    with pytest.raises(ValueError, match="expected a list of at least one column"):
        SmilesCSV(str(folder / "own_val.csv"), "first")
