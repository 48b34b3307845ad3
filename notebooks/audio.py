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
# # A melody, and a bias over time and frequency
#
# A spectrogram is a picture whose two axes mean different things. A small transformer cuts it into patches, and all
# that it knows about where they lie is a bias: a number for each head and each offset in frequency and time.
#
# The clips are synthesised: six tones in noise, in one of four orders and with pauses that grow or shrink. All eight
# classes have the same tones and the same pauses, so only their order in time tells them apart. It runs on a
# processor in about a minute and downloads nothing.

# %%
# ruff: noqa: E402
import tempfile
import warnings
from pathlib import Path

warnings.filterwarnings("ignore", message="IProgress not found")  # of progress bars, which nothing here draws

import torch
from IPython.display import Image
from matplotlib.figure import Figure
from torch.nn import functional as F

import relbias as rb
from relbias.data import Tones

torch.manual_seed(0)
torch.set_num_threads(1)  # the same sums, and so the same figures, on every machine of this kind
folder = Path(tempfile.mkdtemp())  # figures are PNG files
data = Tones(num_frames=128, num_train=2048, num_test=256, batch_size=32)
data.setup()
features, lengths, labels = next(iter(data.test_dataloader()[0]))
print(f"a batch is features {tuple(features.shape)}, lengths {tuple(lengths.shape)} and labels {tuple(labels.shape)}")
print(f"the first clip is: {data.classes[labels[0]]}")

# %% [markdown]
# ## Two networks
#
# Patches of 4 frames by 16 mel bands give a grid of 2 x 32 tokens. One network has no positions, the other Swin v2's
# bias, a small network of the offset in frequency and in time.

# %%
steps, lr = 320, 3e-3


def train(encoding):
    """A trained network; prints how many of the test clips it hears."""
    torch.manual_seed(0)
    model = rb.models.SpectrogramTransformer(
        encoding,
        num_classes=8,
        num_mels=32,
        num_frames=128,
        patch_size=(4, 16),
        dim=48,
        depth=2,
        num_heads=4,
        mlp_ratio=2,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=steps, pct_start=0.2)
    step = 0
    while step < steps:
        for clips, frames, classes in data.train_dataloader():
            loss = F.cross_entropy(model(clips, frames), classes)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            step += 1
            if step == steps:
                break
    model.eval()
    with torch.no_grad():
        right = sum(
            (model(clips, frames).argmax(1) == classes).sum().item()
            for clips, frames, classes in data.test_dataloader()[0]
        )
    print(f"{right} of {len(data.test)} test clips")
    return model


print("without positions: ", end="")
train("none")
print("with a bias: ", end="")
model = train("swin_v2")

# %% [markdown]
# ## The bias
#
# Of each head of both layers, over how far the key lies after the query in time (across, in patches of 4 frames) and
# above it in frequency (up, in patches of 16 bands). Heads that are bright at one side look back, or ahead: that is
# how the network finds out what comes after what.


# %%
@torch.no_grad()
def bias_over_time_and_frequency():
    """A panel for each head of each layer."""
    found = rb.plot.layers(model)
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    for row, layer in zip(figure.subplots(len(found), 4, sharex=True, sharey=True), found, strict=True):
        for head, (axis, offsets) in enumerate(zip(row, layer.offsets(), strict=True)):
            after = offsets[::-1, ::-1]  # offsets are of the query from the key
            axis.imshow(after, aspect="auto", origin="lower", extent=(-31.5, 31.5, -1.5, 1.5), interpolation="nearest")
            axis.set_title(f"{layer.title}, head {head}", fontsize=8)
            axis.set_yticks([-1, 0, 1])
    figure.supxlabel("patches after the query", fontsize=8)
    figure.supylabel("patches above it", fontsize=8)
    figure.savefig(folder / "bias.png", dpi=110)
    return Image(str(folder / "bias.png"))


bias_over_time_and_frequency()

# %% [markdown]
# ## Attention over the clip
#
# The spectrogram, and how much attention each moment receives in each layer, a line for each head, in the mean over
# all patches. A patch's weights are summed over frequency, so that only time is left.


# %%
@torch.no_grad()
def attention_over_time(number):
    """For each layer the weights over the moments of one clip, (H, N, moments)."""
    with rb.capture(model) as captured:
        model(features[number : number + 1], lengths[number : number + 1])
    return {record.name: record.weights[0].unflatten(-1, (2, 32)).sum(-2) for record in captured}


hop = data.logmel.hop
rb.plot.plot_attention_spectrogram(
    attention_over_time(0), features[0].t(), folder / "attention.png", sample_rate=data.sample_rate, hop_length=hop
)
Image(str(folder / "attention.png"))
