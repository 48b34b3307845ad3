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
# # A language model beyond its training length
#
# A model of characters is trained in windows of 64 and then reads 512. Nothing in a transformer forbids that. Whether
# it still works is decided by how it was told the order of its tokens.
#
# The text comes with Python itself, the topics of its help, and the models are small, so that all of this runs on a
# processor in about a minute. [recipes/language](../recipes/language/README.md) has the same comparison with larger
# models, more encodings and three seeds.

# %%
# ruff: noqa: E402
import tempfile
import warnings
from functools import partial
from pathlib import Path

warnings.filterwarnings("ignore", message="IProgress not found")  # of progress bars, which nothing here draws

import torch
from IPython.display import Image
from matplotlib.figure import Figure
from torch.nn import functional as F

import relbias as rb
from relbias.data import PydocTopics
from relbias.plot import Measurement, plot_extrapolation

torch.manual_seed(0)
torch.set_num_threads(1)  # the same sums, and so the same figures, on every machine of this kind
folder = Path(tempfile.mkdtemp())  # figures are PNG files
data = PydocTopics(length=64, batch_size=16, test_lengths=[512])
data.setup()
print(f"{len(data.train):,} characters for training, {len(data.test):,} for the test")
print(data.vocabulary.decode(data.test.tokens[:200]))

# %% [markdown]
# ## Four ways to tell the order
#
# - `rope` turns queries and keys by angles that grow with the position;
# - `alibi` takes from each logit a penalty that grows with the distance, at a rate of its own for each head;
# - `t5` learns a number for each head and each of some ranges of distances;
# - a mapping of two encodings is their sum: here `alibi`, and vectors learned for the distances up to 16 (`shaw`).

# %%
encodings = {
    "rope": "rope",
    "alibi": "alibi",
    "t5": "t5",
    "shaw + alibi": {"near": partial(rb.encodings.Shaw, max_distance=16), "decay": "alibi"},
}


def train(encoding, steps=400, lr=3e-3):
    """A small language model, trained at a length of 64."""
    torch.manual_seed(0)
    model = rb.models.LanguageModel(encoding, num_tokens=len(data.vocabulary), dim=64, depth=2, num_heads=4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=steps, pct_start=0.05)
    step = 0
    while step < steps:
        for tokens, targets in data.train_dataloader():
            loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            step += 1
            if step == steps:
                break
    return model.eval()


models = {name: train(encoding) for name, encoding in encodings.items()}

# %% [markdown]
# ## Text of the models
#
# `rb.generate` keeps the keys and values of earlier tokens, one cache for each layer, so that each new token costs one
# step. After so short a training it is nonsense with the look of English.

# %%
start = data.vocabulary.encode("The ")[None].long()
for name, model in models.items():
    written = rb.generate(model, start, max_new_tokens=60, temperature=0.5, generator=torch.Generator().manual_seed(0))
    print(f"{name:>12}: {data.vocabulary.decode(written[0])!r}")

# %% [markdown]
# ## What a layer adds to the logits
#
# The bias of the first layer against the distance, for each of the four heads. That of ALiBi is known for every
# distance. T5's table has its last two ranges beyond 64: no pair of the training was ever there, and their numbers are
# those that they were drawn with.


# %%
@torch.no_grad()
def bias_against_distance(distances):
    """A panel for each of the two, a line for each head."""
    figure = Figure(figsize=(8, 3), layout="constrained")
    for axis, name in zip(figure.subplots(1, 2), ("alibi", "t5"), strict=True):
        encoding = models[name].blocks[0].attention.encoding
        index = encoding.relation(1, distances)  # one query, the last of so many positions
        zeros = torch.zeros(1, 4, distances, 16)  # with such queries and keys the logits are the bias
        weights = rb.relative_attention(zeros[:, :, -1:], zeros, zeros, encoding(index), return_weights=True)[1]
        bias = weights[0, :, 0].log().flip(-1)  # of each head, the nearest key first; up to a number per head
        for head, line in enumerate(bias - bias[:, :1]):
            axis.plot(line, label=f"head {head}")
        axis.axvline(63, color="black", linestyle="dashed", linewidth=1)
        axis.set(title=name, xlabel="distance, tokens", ylabel="bias")
        axis.legend(fontsize=7)
    figure.savefig(folder / "bias.png", dpi=110)
    return Image(str(folder / "bias.png"))


bias_against_distance(200)

# %% [markdown]
# ## The curve
#
# Each model is tested by the same weights at lengths up to 512. The windows of every length end with the same
# characters, so that the lengths differ in the context alone. The upper panel is the loss over all characters of a
# window, the lower one that over its last quarter, where the context is longest; the dashed line is the length of the
# training.


# %%
@torch.no_grad()
def losses(model, length):
    """The mean loss over all characters of the test's windows, and over their last quarters."""
    found = [
        F.cross_entropy(model(tokens).transpose(1, 2), targets, reduction="none")
        for tokens, targets in data.test_dataloader_at(length)
    ]
    every = torch.cat(found)
    return {"loss": every.mean().item(), "loss_last_quarter": every[:, -(length // 4) :].mean().item()}


rows = [
    Measurement(name, name, 0, length, metric, value)
    for name, model in models.items()
    for length in (32, 64, 128, 256, 512)
    for metric, value in losses(model, length).items()
]
plot_extrapolation(rows, folder / "curve.png", training_size=64, label="length, tokens")
Image(str(folder / "curve.png"))
