import pytest
import timm
import torch

import relbias as rb


@pytest.fixture
def lively():
    """Makes attention matter to the output of a fresh model."""

    def enliven(model, gain=4.0):
        with torch.no_grad():
            for key, parameter in model.named_parameters():
                if key.endswith((".gamma", "norm1.weight", "norm2.weight")):
                    parameter.fill_(1.0)  # timm starts the scale of a layer near 0
                if key.endswith("qkv.weight"):
                    parameter.mul_(gain)
        return model

    return enliven


@pytest.fixture
def make_vit(lively):
    """Builds a small vision transformer, in eval mode, in which attention matters to the output."""

    def make(name="vit_tiny_patch16_224", **arguments):
        torch.manual_seed(0)
        arguments = {"img_size": 64, "depth": 2, "num_classes": 5} | arguments
        return lively(timm.create_model(name, **arguments).eval())

    return make


@pytest.fixture
def train():
    """Moves every encoding away from its start, as training would; equal models are moved equally."""

    def move(model):
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for module in model.modules():
                if isinstance(module, rb.Encoding):
                    for parameter in module.parameters(recurse=False):
                        parameter.copy_(torch.randn(parameter.shape, generator=generator))

    return move


@pytest.fixture
def bias_mask():
    """Builds, pair by pair, the mask that a table over a grid stands for."""

    def build(table, table_grid, grid, prefix_tokens):
        (table_height, table_width), (height, width), p = table_grid, grid, prefix_tokens
        columns = 2 * table_width - 1
        patch_codes = (2 * table_height - 1) * columns
        codes = []
        for i in range(p + height * width):
            for j in range(p + height * width):
                if i < p and j < p:
                    codes.append(patch_codes + 2 * p + i * p + j)
                elif i < p:
                    codes.append(patch_codes + i)
                elif j < p:
                    codes.append(patch_codes + p + j)
                else:
                    (yi, xi), (yj, xj) = divmod(i - p, width), divmod(j - p, width)
                    codes.append((yi - yj + table_height - 1) * columns + xi - xj + table_width - 1)
        tokens = p + height * width
        return table.detach()[:, torch.tensor(codes)].view(1, -1, tokens, tokens)

    return build


@pytest.fixture
def model(make_vit, train):
    """A model for images of any size, with a table up to 6 x 6 patches in each layer."""
    model = make_vit(dynamic_img_size=True)
    rb.plugins.timm.attach(model, "table", grid=(6, 6))
    train(model)
    return model
