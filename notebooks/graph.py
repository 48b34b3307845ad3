# ---
# jupyter:
#   jupytext:
#     notebook_metadata_filter: kernelspec,jupytext,-jupytext.text_representation.jupytext_version
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A graph transformer on molecules
#
# Attention sees a set of atoms. What is bonded to what has to be told, and it is told between atoms: how many bonds
# lie between two of them, their **hops**. A table gives each head a number for each count of hops, and that is all
# the structure that this model gets.
#
# The data is small, so that all of this runs on a processor in less than a minute: a few hundred real molecules that
# come with the package rdkit. The target is the polar surface area, a sum over atoms such as oxygen and nitrogen of a
# number that depends on their neighbours.

# %%
# ruff: noqa: E402
import tempfile
import warnings
from pathlib import Path

warnings.filterwarnings("ignore", message="IProgress not found")  # of progress bars, which nothing here draws
warnings.filterwarnings("ignore", message=".*torch.jit.script")  # which PyG uses

import torch
from IPython.display import Image
from matplotlib.figure import Figure
from rdkit import Chem
from rdkit.Chem import Draw
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINConv, GPSConv

import relbias as rb
from relbias.data.molecules import BONDS, ELEMENTS, NCIMolecules

torch.manual_seed(0)
torch.set_num_threads(1)  # the same sums, and so the same figures, on every machine of this kind
folder = Path(tempfile.mkdtemp())  # figures are PNG files
graphs = [graph for graph in NCIMolecules(limit=700) if graph.num_nodes <= 30]
train_graphs, test_graphs = graphs[:500], graphs[500:]
print(f"{len(train_graphs)} molecules for training, {len(test_graphs)} for the test")

# %% [markdown]
# ## A molecule
#
# A graph has the element of each atom and the kind of each bond; hydrogen is left out. Drawn back from the graph:

# %%
graph = next(graph for graph in test_graphs if graph.num_nodes == 13)
symbols = [ELEMENTS[code - 1] for code in graph.x.flatten().tolist()]


def drawn(graph):
    """The molecule with the numbers of its atoms."""
    molecule = Chem.RWMol()
    for symbol in symbols:
        molecule.AddAtom(Chem.Atom(symbol))
    for (i, j), kind in zip(graph.edge_index.T.tolist(), graph.edge_attr.tolist(), strict=True):
        if i < j:
            molecule.AddBond(i, j, getattr(Chem.BondType, BONDS[kind]))
    for atom in molecule.GetAtoms():
        atom.SetProp("atomNote", str(atom.GetIdx()))
    return Draw.MolToImage(molecule, size=(420, 300), kekulize=False)


print(graph)
drawn(graph)

# %% [markdown]
# Its hops, for all pairs of atoms. A number of -1 would say that there is no path, as between two fragments.

# %%
hops = rb.relations.shortest_paths(graph.edge_index, graph.num_nodes)


def picture(matrix):
    """A matrix with its numbers written into it."""
    figure = Figure(figsize=(4.5, 4.2), layout="constrained")
    axis = figure.subplots()
    axis.imshow(matrix, cmap="viridis")
    for i, row in enumerate(matrix.tolist()):
        for j, value in enumerate(row):
            axis.text(j, i, value, ha="center", va="center", fontsize=7, color="white" if value < 5 else "black")
    names = [f"{symbol} {i}" for i, symbol in enumerate(symbols)]
    axis.set_xticks(range(len(names)), names, fontsize=7, rotation=90)
    axis.set_yticks(range(len(names)), names, fontsize=7)
    figure.savefig(folder / "hops.png", dpi=110)
    return Image(str(folder / "hops.png"))


picture(hops)

# %% [markdown]
# ## A short training
#
# Hops do not change from epoch to epoch. The transform `AddShortestPaths` stores them once in each graph, and PyG's own
# loader makes batches of graphs of different sizes. Without it the model makes them from the edges, batch by batch.
#
# The table has a strength: its numbers are multiplied by 100, so that heads begin far apart and a short training moves
# them.

# %%
transform = rb.plugins.pyg.AddShortestPaths(max_distance=20)
train_batches = DataLoader([transform(graph) for graph in train_graphs], batch_size=32, shuffle=True)
test_batch = next(iter(DataLoader([transform(graph) for graph in test_graphs], batch_size=len(test_graphs))))
areas = torch.cat([graph.y for graph in train_graphs])
mean, std = areas.mean(), areas.std()


def table(num_heads, head_dim, relation):
    """A number for each head and each count of hops."""
    return rb.encodings.Table(num_heads, head_dim, relation, strength=100)


def predict(model, batch):
    """The polar surface area of each molecule, (B, 1)."""
    return mean + std * model(batch.x, batch.edge_index, batch=batch.batch, hops=batch.hops)


def train(encoding, epochs=20, lr=3e-3):
    """A trained model; prints by how much it is off on the test molecules, in the mean."""
    torch.manual_seed(0)
    model = rb.models.GraphTransformer(
        encoding, num_outputs=1, node_types=16, dim=32, depth=2, num_heads=4, readout="sum", max_hops=8
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=epochs * len(train_batches))
    for _ in range(epochs):
        for batch in train_batches:
            loss = (predict(model, batch) - batch.y).abs().mean() / std
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    with torch.no_grad():
        error = (predict(model.eval(), test_batch) - test_batch.y).abs().mean()
    print(f"off by {error:.1f} square angstroms in the mean")
    return model


print(f"the mean of the training molecules: off by {(test_batch.y - mean).abs().mean():.1f}")
print("without structure: ", end="")
train("none")
print("with hops: ", end="")
model = train(table)

# %% [markdown]
# ## What the table has learned
#
# The bias of each head against hops. Where a line is high, the head looks at atoms so far away; 0 is the atom itself,
# 1 are its neighbours. Only differences along a line count, so each begins at 0. For all
# heads of the first layer a neighbour counts less than the atom itself, for all of the second more.


# %%
@torch.no_grad()
def bias_against_hops():
    """For each layer a panel with a line for each head."""
    figure = Figure(figsize=(8, 3), layout="constrained")
    for axis, (layer, block) in zip(figure.subplots(1, 2, sharey=True), enumerate(model.blocks), strict=True):
        encoding = block.attention.encoding
        terms = encoding(encoding.relation(torch.arange(9)[None]))
        bias = terms.entries[0].b[:, :9]  # the codes of hops are the hops themselves, then those of far and no path
        for head, line in enumerate(bias - bias[:, :1]):
            axis.plot(line, marker=".", label=f"head {head}")
        axis.set(title=f"layer {layer}", xlabel="hops", ylabel="bias")
        axis.legend(fontsize=7)
    figure.savefig(folder / "bias.png", dpi=110)
    return Image(str(folder / "bias.png"))


bias_against_hops()

# %% [markdown]
# ## Where it attends
#
# `rb.capture` records the attention weights of each layer while the model is called. Circled in red is the atom that
# asks, the colours are the weights that it gives, in the second layer.

# %%
query = symbols.index("N")
with torch.no_grad(), rb.capture(model) as captured:
    model(graph.x, graph.edge_index)
weights = {record.name: record.weights[0] for record in captured[1:]}  # of the second layer
path, _ = rb.plot.plot_attention_graph(weights, graph.edge_index, folder / "attention.png", query=query, labels=symbols)
Image(str(path))

# %% [markdown]
# ## In a model of PyG
#
# PyG's own graph transformer layer, `GPSConv`, has attention that knows no structure. One call gives it the same
# table; it makes the hops from the `edge_index` and `batch` that it is called with. Until training moves the table, the
# outputs stay what they were, up to rounding.

# %%
conv = GPSConv(32, GINConv(torch.nn.Linear(32, 32)), heads=4).eval()
x = torch.randn(graph.num_nodes, 32)
before = conv(x, graph.edge_index)
rb.plugins.pyg.attach(conv, "table")
print(conv.attn.encoding)
print(f"the outputs differ by at most {(conv(x, graph.edge_index) - before).abs().max():.0e}")

# %% [markdown]
# The hops above were one relation of several. A mapping takes more of them: `{"hops": "table", "edge_types": "table"}`
# adds the kind of the bond, `{"hops": "table", "edges": "graphormer_edges"}` the bonds along a shortest path. What each
# is worth over several seeds is measured in `recipes/graph/README.md`, and `relbias fit -c graph/molecules` trains on
# all of these molecules.
