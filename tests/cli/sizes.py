"""A network for tests at other sizes."""

import timm
import torch
from torch import nn

from relbias.plugins.timm import attach, resize


class Timm(nn.Module):
    """A vision transformer of timm with an encoding attached, which does something from the start."""

    def __init__(self, encoding, dynamic_img_size):
        super().__init__()
        options = {"img_size": 16, "patch_size": 4, "in_chans": 1, "num_classes": 10, "embed_dim": 8, "depth": 1}
        options |= {"class_token": False, "global_pool": "avg", "dynamic_img_size": dynamic_img_size}
        self.model = timm.models.VisionTransformer(**options, num_heads=2)
        attach(self.model, encoding)
        generator = torch.Generator().manual_seed(1)
        for parameter in self.model.parameters():
            if parameter.ndim == 2:
                torch.nn.init.normal_(parameter, generator=generator)

    def prepare_for_size(self, size, unit):
        self.model.set_input_size(img_size=(size, size))
        if self.model.blocks[0].attn.encoding.fixed_size:
            resize(self.model, (size // 4, size // 4), unit)

    def forward(self, images):
        return self.model(images)
