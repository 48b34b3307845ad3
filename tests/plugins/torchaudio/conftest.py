import pytest
import torch
from tests.plugins.torchaudio.hosts import BUNDLES, make

import relbias as rb


@pytest.fixture(params=BUNDLES)
def model(request):
    """A small model of each bundle's kind, in eval mode."""
    return make(request.param)


@pytest.fixture(params=[name for name in BUNDLES if "wavlm" in name])
def wavlm(request):
    return make(request.param)


@pytest.fixture
def train():
    """Moves every encoding away from where it is, as training would; equal models are moved equally."""

    def move(model):
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for module in model.modules():
                if isinstance(module, rb.Encoding):
                    for parameter in module.parameters():
                        parameter.add_(torch.randn(parameter.shape, generator=generator).to(parameter.dtype))

    return move
