"""Every architecture of timm is attached to, or refused in one line."""

import pytest
import timm
from timm.models import list_modules

from relbias.plugins.timm import attach, detach, list_models


def check(names):
    supported = set(list_models())
    for name in names:
        model = timm.create_model(name, device="meta")
        keys, classes = list(model.state_dict()), [type(module) for module in model.modules()]
        if name in supported:
            attach(model, "table")
            new = model.state_dict().keys() - set(keys)
            assert new, name
            assert all(".encoding." in key and model.state_dict()[key].is_meta for key in new), name
            detach(model)
        else:
            with pytest.raises(ValueError, match=f"^{name} is not supported: .*; the nearest supported model is '"):
                attach(model, "table")
        assert list(model.state_dict()) == keys, name
        assert [type(module) for module in model.modules()] == classes, name


SMALL = (
    "botnet26t_256",
    "convit_tiny",
    "crossvit_9_240",
    "csatv2",
    "efficientvit_m0",
    "levit_128s",
    "mobilevit_xxs",
    "mobilevitv2_050",
    "pit_ti_224",
    "repvgg_a0",
    "resnet18",
    "vit_dpwee_patch16_reg1_gap_256",
)


def test_small_architectures():
    check(SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("file", list_modules())
def test_every_architecture(file):
    check(timm.list_models(module=file))


def test_every_supported_name_is_of_timm():
    assert set(list_models()) <= set(timm.list_models())
    assert len(list_models()) >= 445
