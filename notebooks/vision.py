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
# # A relative encoding inside a vision transformer of timm
#
# A vision transformer knows where its patches are by a vector added to each at the input, which belongs to one
# place in images of one size. A **relative** encoding tells attention the offset between two patches instead. One
# call puts one into a model that is already trained; until training moves it, the output stays exactly what it was.
#
# The model and the images are small, so that all of this runs on a processor in less than a minute: real digits of
# 8 x 8 pixels on a canvas of 16 x 16, cut into patches of 4 x 4.

# %%
# ruff: noqa: E402
import copy
import tempfile
import warnings
from pathlib import Path

warnings.filterwarnings("ignore", message="IProgress not found")  # of progress bars, which nothing here draws

import timm
import torch
from IPython.display import Image

import relbias as rb
from relbias.data import Digits

torch.manual_seed(0)
torch.set_num_threads(1)  # the same sums, and so the same figures, on every machine of this kind
folder = Path(tempfile.mkdtemp())  # every figure is a PNG file with its numbers as CSV beside it
data = Digits(batch_size=64, augment=1, degrees=0, scale=(0.5, 1.5))  # larger and smaller on the same canvas
data.setup()
batches = data.train_dataloader()
test_images, test_labels = data.test.tensors
print(f"{len(data.train)} images for training, {len(test_images)} for the test, {tuple(test_images.shape[1:])}")


def train(model, epochs, lr):
    """Trains all parameters; gives the share of right answers on the test images."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=epochs * len(batches))
    model.train()
    for epoch in range(epochs):
        batches.sampler.set_epoch(epoch)
        for images, labels in batches:
            loss = torch.nn.functional.cross_entropy(model(images), labels, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return accuracy(model, test_images)


@torch.no_grad()
def accuracy(model, images):
    """The share of right answers on the test images, at some size."""
    return (model.eval()(images).argmax(-1) == test_labels).float().mean().item()


# %% [markdown]
# ## A model that is trained
#
# Any model that `relbias list timm` names will do, with or without pretrained weights. This one is timm's own
# `VisionTransformer` in small.

# %%
plain = timm.models.VisionTransformer(
    img_size=16, patch_size=4, in_chans=1, num_classes=10, embed_dim=48, depth=2, num_heads=3, dynamic_img_size=True
)
print(f"right after training: {train(plain, epochs=36, lr=3e-3):.1%}")

# %% [markdown]
# ## One call
#
# The grid of 4 x 4 patches and the class token come from the model. The table has a number for each head and each
# offset (dy, dx), all of them 0: the output is the same to the last bit.

# %%
model = copy.deepcopy(plain)
rb.plugins.timm.attach(model, encoding="table")
print(model.blocks[0].attn.encoding)
with torch.no_grad():
    same = torch.equal(model(test_images), plain(test_images))
print(f"the output is {'exactly the same' if same else 'another'}")
assert same

# %% [markdown]
# What the table looks like before and after it is trained together with the rest of the model:


# %%
def draw(name):
    """The table of the first layer, a picture for each head."""
    first, *_ = rb.plot.layers(model)
    path, _ = rb.plot.plot_bias([first], folder / f"{name}.png", title=f"{name}, first layer")
    return Image(str(path))


draw("before")

# %%
right = train(model, epochs=15, lr=2e-3)
further = copy.deepcopy(plain)
right_without = train(further, epochs=15, lr=2e-3)
print(f"trained further: {right:.1%} with the table, {right_without:.1%} without")
draw("after")

# %% [markdown]
# A bright spot at (0, 0) means that a patch looks at itself, one at (1, 0) that it looks at the patch above it.
#
# ## Images of another size
#
# The same digits at other resolutions make other grids. The grid comes from each call's image, so a smaller one
# works at once; a table has no number for the offsets of a larger one until it is resized, either for more patches
# of the same scale ("patch") or for the same images cut finer ("image"). Encodings that are functions of the offset,
# such as `swin_v2`, take any size.

# %%
with torch.no_grad():
    try:
        model(torch.zeros(1, 1, 24, 24))
    except ValueError as error:
        print(error)

# %%
rows = []


def measure(name, model):
    """The accuracy at each size, with the table made larger where it has to be."""
    for size in (8, 16, 24, 32):
        images = torch.cat([batch for batch, _ in data.test_dataloader_at(size)])
        adapted = copy.deepcopy(model)
        if "table" in name and size > 16:
            rb.plugins.timm.resize(adapted, (size // 4, size // 4), unit="image")
        rows.append(rb.plot.Measurement("", name, 0, size, "accuracy", accuracy(adapted, images)))


other = copy.deepcopy(plain)
rb.plugins.timm.attach(other, "swin_v2", drop_positions=True)
print(f"swin_v2 in place of the positions: {train(other, epochs=15, lr=2e-3):.1%}")
measure("positions", further)
measure("positions and table", model)
measure("swin_v2 alone", other)
path, _ = rb.plot.plot_extrapolation(
    rows, folder / "resolution.png", training_size=16, label="image side, pixels", title="trained at 16 x 16"
)
Image(str(path))

# %% [markdown]
# The dashed line is the size of the training, in which digits were drawn at half to one and a half times their size.
# All sizes here are such that a digit's centre lies on a border of patches, as in training. `drop_positions` leaves the
# model's own positions out, so that it knows offsets alone. What encodings do for resolution over several seeds is
# measured in `recipes/vision/README.md`; for your own runs there is `relbias plot extrapolation RUN_DIR... --at ...`.
#
# ## Keep it, and take it out
#
# The encodings are parameters of the model like all others; what `attach` was given is a plain dict.

# %%
settings = rb.plugins.timm.settings(model)
print(settings)
fresh = copy.deepcopy(plain)
rb.plugins.timm.attach(fresh, **settings)
fresh.load_state_dict(model.state_dict())
rb.plugins.timm.detach(fresh)
print(type(fresh.blocks[0].attn).__name__, "again")
