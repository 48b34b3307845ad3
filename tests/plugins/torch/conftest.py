import pytest
import torch
from tests.plugins.torch.hosts import HOSTS, make

import relbias as rb


@pytest.fixture(params=HOSTS)
def host(request):
    """(model, call), in eval mode."""
    return make(request.param)


@pytest.fixture
def unfused():
    """Turns off torch's fused inference, whose numbers differ by rounding."""
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(True)


@pytest.fixture
def train():
    """Moves every encoding away from its start, as training would; equal models are moved equally."""

    def move(model):
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for module in model.modules():
                if isinstance(module, rb.Encoding):
                    for parameter in module.parameters(recurse=False):
                        parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))

    return move
