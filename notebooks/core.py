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
# # Attention that knows how two tokens are related
#
# Plain attention sees a set: put the tokens in another order, and the outputs come in that order, otherwise
# unchanged. What a transformer knows of positions has to be added. relbias adds it *between* tokens: a
# **relation** gives every pair of query $i$ and key $j$ a code $r_{ij}$, an **encoding** turns codes into terms of
# one equation, and one attention function computes it:
#
# $$s_{ij} = c \,\Big[ \mathrm{rot}(q_i) \cdot \mathrm{rot}(k_j) + u \cdot k_j
# + \sum_t \big( (q_i + w_t) \cdot K_t[r_t] + k_j \cdot Q_t[r_t] \big) \Big]
# + \sum_t g_{t,i}\, b_t(i, j) + \mathrm{mask}_{ij}$$
#
# $$o_i = \sum_j \mathrm{softmax}_j(s)_{ij} \Big( v_j + \sum_t V_t[r_t] \Big)$$
#
# | term | in words |
# |---|---|
# | $q_i \cdot k_j$ | what query and key say to each other, by their content |
# | $b$ | a number for the pair, whatever the content |
# | $K$, $Q$ | a vector for the pair, which the query or the key meets: position and content together |
# | $V$ | a vector for the pair, added to the value: the output tells where something came from |
# | rot | query and key are turned by angles that grow with their positions; the product keeps the difference |
# | $u$, $w$, $g$ | a vector that every key meets, one added to the query for $K$, a factor of $b$ per query |
# | $c$ | the scale, $1/\sqrt{D}$ unless said otherwise |
#
# The sum runs over relations $t$, of which there may be several; $r_t$ is short for the code of $(i, j)$ under
# $t$.

# %%
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from IPython.display import Image
from torch import nn

import relbias as rb

folder = Path(tempfile.mkdtemp())  # every figure is a PNG file with its numbers as CSV beside it

# %% [markdown]
# Two lines of that, tried out. Attention without an encoding (`none`) does not see the order, attention with `rope`
# (the term rot) does; and what it sees are differences: later positions give the same outputs, up to rounding.

# %%
torch.manual_seed(0)
x, order = torch.randn(1, 9, 32), torch.randperm(9)
with torch.no_grad():
    for name in ("none", "rope"):
        layer = rb.RelativeAttention(32, num_heads=2, encoding=name)
        blind = torch.allclose(layer(x[:, order]), layer(x)[:, order], atol=1e-4)
        print(f"{name}: the order makes {'no' if blind else 'a'} difference")
        assert blind == (name == "none")
    shifted = torch.allclose(layer(x, positions=torch.arange(9) + 100), layer(x), atol=1e-4)
print(f"rope: positions from 100 on make {'no' if shifted else 'a'} difference")
assert shifted

# %% [markdown]
# ## One attention, three relations
#
# Nine tokens. In a sequence their relation is the offset, on a grid of 3 x 3 patches the offset in both
# directions, in a graph the number of hops between two nodes.

# %%
edges = torch.tensor([[0, 1, 2, 3, 4, 4, 4, 7], [1, 2, 3, 4, 5, 6, 7, 8]])  # a chain that ends in three branches
hops = torch.full((9, 9), 9)
hops[edges[0], edges[1]] = hops[edges[1], edges[0]] = 1
hops.fill_diagonal_(0)
for middle in range(9):  # Floyd and Warshall: is there a shorter way through this node?
    hops = torch.minimum(hops, hops[:, [middle]] + hops[[middle]])

relations = {
    "sequence": rb.relations.Sequence(max_distance=8),
    "grid": rb.relations.Grid(3, 3),
    "graph": rb.relations.Hops(max_distance=8),
}
indices = {
    "sequence": relations["sequence"](9),
    "grid": relations["grid"](),
    "graph": relations["graph"](hops),
}
for name, index in indices.items():
    print(f"{name}: {index.num_codes} codes; those of token 4 with every token: {index.codes()[0, 0, 4].tolist()}")

# %% [markdown]
# The layer is the same for all three: projections of the same size, and a `table`, a number $b$ for every code.
# Only the table's length differs. As an illustration we write minus the distance into each table, and give
# tokens without content (zeros), so that nothing but $b$ decides where token 4 looks.

# %%
places = torch.tensor([[token // 3, token % 3] for token in range(9)])
distances = {
    "sequence": (torch.arange(9)[:, None] - torch.arange(9)).abs(),
    "grid": (places[:, None] - places).pow(2).sum(dim=-1).sqrt(),
    "graph": hops,
}
tokens = torch.zeros(1, 9, 16)
weights = {}
for name, relation in relations.items():
    layer = rb.RelativeAttention(16, num_heads=1, encoding="table", relation=relation)
    with torch.no_grad():
        layer.encoding.table[0, indices[name].codes()[0, 0]] = -distances[name].float()
    with rb.capture(layer) as captured:
        output = layer(tokens, index=indices[name])
    weights[name] = captured[0].weights[0].double().numpy()
    print(f"{name}: output {tuple(output.shape)}, weights of token 4: {weights[name][0, 4].round(2).tolist()}")

# %% [markdown]
# The sequence, as the matrix of all weights:

# %%
png, csv = rb.plot.plot_attention_sequence(
    {"sequence": weights["sequence"]}, folder / "sequence.png", tokens=list("012345678")
)
Image(png)

# %% [markdown]
# The grid, from token 4, the patch in the middle. The image below the weights is empty here:

# %%
empty = np.zeros((1, 3, 3))
png, csv = rb.plot.plot_attention_image({"grid": weights["grid"]}, empty, (3, 3), folder / "grid.png", query=4)
Image(png)

# %% [markdown]
# The graph, from token 4, the node that is circled:

# %%
png, csv = rb.plot.plot_attention_graph({"graph": weights["graph"]}, edges.numpy(), folder / "graph.png", query=4)
Image(png)

# %% [markdown]
# ## What training does to the bias
#
# A task that needs positions: say again, at every place, the letter that stood three places before. The model
# has one layer of attention; its encoding is an argument.


# %%
class Copier(nn.Module):
    """Letters in, the logits of letters out, (B, N) to (B, N, 8)."""

    def __init__(self, encoding, relation):
        super().__init__()
        self.embedding = nn.Embedding(8, 32)
        self.attention = rb.RelativeAttention(32, 2, encoding, relation)
        self.head = nn.Linear(32, 8)

    def forward(self, letters):
        return self.head(self.attention(self.embedding(letters)))


def batch(size, length):
    """Letters (B, N), and the letters three places before, which begin with the fourth place."""
    letters = torch.randint(8, (size, length))
    return letters, letters[:, :-3]


def accuracy(model, length):
    """The share of letters that are right, in 64 new sequences."""
    letters, before = batch(64, length)
    with torch.no_grad():
        return (model(letters)[:, 3:].argmax(dim=-1) == before).float().mean().item()


def train(model, steps=300):
    """Adam on new sequences of 24 letters."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        letters, before = batch(32, 24)
        loss = nn.functional.cross_entropy(model(letters)[:, 3:].flatten(0, 1), before.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


# %% [markdown]
# Without an encoding (`none`) attention sees a set of letters. With a `table` over offsets of up to 8 places it
# can learn where to look. We draw the table before and after.

# %%
torch.manual_seed(0)
nearby = rb.relations.Sequence(max_distance=8)
blind = train(Copier("none", nearby))
model = Copier("table", nearby)
[before] = rb.plot.layers(model)
train(model)
[after] = rb.plot.layers(model)

results = {"none": accuracy(blind, 24), "table": accuracy(model, 24), "table, 48 letters": accuracy(model, 48)}
for name, share in results.items():
    print(f"{name}: {share:.1%} right (guessing: {1 / 8:.1%})")

# %%
assert results["none"] < 0.3
assert min(results["table"], results["table, 48 letters"]) > 0.9

# %% [markdown]
# With the table more than nine letters of ten are right, also in sequences twice as long as those of the
# training: an offset of three is an offset of three everywhere. Without it fewer than three of ten are.
#
# The bias tells why. It began as noise around zero; now it is highest at the offset -3 in both heads (an offset
# is key minus query, so that is the key three places before). Offsets beyond 8 places share the code of 8.

# %%
offsets = np.arange(-63, 64)
for name, layer in {"before": before, "after": after}.items():
    best = offsets[layer.offsets().argmax(axis=1)]
    low, high = layer.values.min(), layer.values.max()
    print(f"{name}: from {low:.2f} to {high:.2f}, highest at the offsets {best.tolist()}, one for each head")
assert best.tolist() == [-3, -3]

# %%
png, csv = rb.plot.plot_curve([replace(before, name="before"), replace(after, name="after")], folder / "curve.png")
Image(png)

# %% [markdown]
# ## Where attention goes
#
# `rb.capture` records the logits and weights of every layer that runs inside the block. Here is a new sequence,
# with the weights of both heads and their mean:

# %%
letters, before = batch(1, 16)
with torch.no_grad(), rb.capture(model) as captured:
    logits = model(letters)
record = captured[0]
print(record.name, tuple(record.logits.shape), tuple(record.weights.shape))

words = ["abcdefgh"[letter] for letter in letters[0]]
png, csv = rb.plot.plot_attention_sequence(
    {record.name: record.weights[0].numpy()}, folder / "attention.png", tokens=words
)
Image(png)

# %%
received = record.weights[0].mean(dim=0).diagonal(-3).mean().item()
print(
    f"{received:.0%} of the weight goes three places back, the mean over queries and heads; evenly spread: {1 / 16:.0%}"
)
assert received > 3 / 16
