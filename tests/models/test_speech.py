"""The transformer over frames: stacking against a loop, clips in a batch against each alone, bad input."""

import pytest
import torch
from tests.encodings.every import DIM, HEADS
from tests.models.sequences import every_encoding

from relbias.models import SpeechTransformer

MELS = 5
SIZES = {"num_outputs": 4, "num_mels": MELS, "dim": DIM, "depth": 2, "num_heads": HEADS}


def make(encoding, **options):
    torch.manual_seed(0)
    model = SpeechTransformer(encoding, **{**SIZES, **options}).double().eval()
    for name, parameter in model.named_parameters():
        if name.startswith("blocks") and parameter.ndim == 2 and "encoding" not in name:
            torch.nn.init.normal_(parameter, std=0.4)
    return model


def clips(*lengths, padding=float("nan")):
    """A batch whose padding is NaN, and its lengths."""
    generator = torch.Generator().manual_seed(1)
    features = torch.full((len(lengths), max(lengths), MELS), padding, dtype=torch.float64)
    for row, length in zip(features, lengths, strict=True):
        row[:length] = torch.randn(length, MELS, generator=generator, dtype=torch.float64)
    return features, torch.tensor(lengths)


@every_encoding()
@pytest.mark.parametrize("stack", [2, 3])
def test_clips_in_a_batch_equal_each_alone(made, stack):
    model = make(made.encoding(), stack=stack)
    features, lengths = clips(13, 8, 1)
    with torch.no_grad():
        outputs, tokens = model(features, lengths)
        assert tokens.tolist() == [-(-length // stack) for length in (13, 8, 1)]
        for row, output, length in zip(features, outputs, (13, 8, 1), strict=True):
            alone, number = model(row[None, :length], torch.tensor([length]))
            torch.testing.assert_close(output[:number], alone[0], rtol=0, atol=1e-10)


def test_tokens_are_stacked_frames():
    model = make("none", stack=3, depth=1)
    features, lengths = clips(7)
    seen = []
    model.blocks[0].register_forward_pre_hook(lambda module, arguments: seen.append(arguments[0]))
    model(features, lengths)
    numbers = [*features.flatten().tolist(), *[0.0] * 2 * MELS]
    for number in range(3):
        stacked = torch.tensor(numbers[3 * MELS * number :][: 3 * MELS], dtype=torch.float64)
        expected = model.embedding.weight @ stacked + model.embedding.bias
        torch.testing.assert_close(seen[0][0, number], expected)


def test_padding_gets_no_gradient():
    model = make("rope")
    features, lengths = clips(9, 4, padding=0.0)
    features.requires_grad_()
    outputs, tokens = model(features, lengths)
    sum(row[:number].square().sum() for row, number in zip(outputs, tokens, strict=True)).backward()
    assert not features.grad[1, 4:].any()
    assert features.grad[1, :4].any(-1).all()
    assert features.grad[0].any(-1).all()


def test_a_token_sees_no_farther_than_the_window():
    features, lengths = clips(18)
    for window, seen in ((None, range(9)), ((1, 2), range(3, 7))):
        model = make("alibi", window=window, depth=1)
        changed = []
        for token in range(9):
            other = features.clone()
            other[0, 2 * token] += 1
            changed.append(not torch.equal(model(other, lengths)[0][0, 4], model(features, lengths)[0][0, 4]))
        assert [token for token, differs in enumerate(changed) if differs] == list(seen)


def test_positions_at_the_input_count_tokens():
    model = make("learned", max_length=5)
    features, lengths = clips(10)
    shorter = (features[:, :8], torch.tensor([8]))
    with torch.no_grad():
        before, before_shorter = model(features, lengths)[0], model(*shorter)[0]
        model.position.table[4].normal_(std=3)
        assert not torch.allclose(model(features, lengths)[0], before)
        assert torch.equal(model(*shorter)[0], before_shorter)
    with pytest.raises(ValueError, match="'learned' has 5 positions, got 6 tokens"):
        model(*clips(11))


def test_every_parameter_has_its_start_anew():
    for encoding in ("sinusoidal", "learned", "t5"):
        torch.manual_seed(0)
        model = SpeechTransformer(encoding, max_length=6, **SIZES)
        state = {name: value.clone() for name, value in model.state_dict().items()}
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(7.0)
        model.reset_parameters()
        for name, value in model.state_dict().items():
            assert not (value == 7.0).any(), name
            assert value.std(correction=0) < 3 * state[name].std(correction=0) + 1e-3, name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stack": 0}, "stack must be"),
        ({"num_outputs": 0}, "num_outputs must be"),
        ({"dim": 30}, "dim must be a multiple of num_heads, got dim=30 and num_heads=4"),
        ({"encoding": "learned"}, "'learned' on a sequence needs max_length"),
        ({"encoding": "rope_axial"}, "'rope_axial' takes the relation Grid"),
    ],
)
def test_sizes_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        SpeechTransformer(**{"encoding": "none", **SIZES, **options})


@pytest.mark.parametrize(
    ("features", "lengths", "message"),
    [
        (torch.zeros(2, 6, 4), torch.tensor([6, 6]), r"features must have shape \(B, T, 5\), got \(2, 6, 4\)"),
        (torch.zeros(2, 6, 5), torch.tensor([6]), r"lengths must be a tensor of shape \(2,\), got \(1,\)"),
        (torch.zeros(2, 6, 5), [6, 6], r"lengths must be a tensor of shape \(2,\), got a list"),
        (torch.zeros(2, 6, 5), torch.tensor([6.0, 6.0]), "lengths must be integers"),
        (torch.zeros(2, 6, 5), torch.tensor([6, 0]), "lengths must be from 1 to the 6 frames that there are, got 0"),
        (torch.zeros(2, 6, 5), torch.tensor([6, 7]), "lengths must be from 1 to the 6 frames that there are, got 7"),
    ],
)
def test_input_that_does_not_fit_is_refused(features, lengths, message):
    with pytest.raises(ValueError, match=message):
        SpeechTransformer("none", **SIZES)(features, lengths)
