import pytest
import torch

import relbias as rb
from relbias.encodings import DeBERTa, MusicTransformer, TransformerXL
from relbias.encodings.offsets import occurring_offsets
from relbias.relations import Sequence

CPU = torch.device("cpu")
ENCODINGS = [
    TransformerXL,
    lambda *args: TransformerXL(*args, clamp_len=5),
    lambda *args: MusicTransformer(*args, max_distance=20),
    lambda *args: DeBERTa(*args, position_buckets=16, max_relative_positions=32),
    lambda *args: DeBERTa(*args, position_buckets=None, max_relative_positions=16, share_att_key=True),
]
NAMES = ["transformer_xl", "clamp_len", "music_transformer", "deberta", "share_att_key"]


@pytest.mark.parametrize(("relation", "count"), [(Sequence(), 13), (Sequence(3), 7), (Sequence(6), 11)])
def test_the_rows_that_occur_and_no_others(relation, count):
    for index in (relation(5, 9), relation(5, 9).T):
        offsets, rows = occurring_offsets(index, CPU)
        assert len(offsets) == rows.num_codes == count
        assert torch.equal(rows.codes().unique(), torch.arange(count))
        assert torch.equal(offsets[rows.codes()], index.differences())
        assert torch.equal(offsets[rows.diagonals()], index.offsets())


def test_given_positions():
    queries, keys = torch.tensor([[3, 8, 0], [5, 5, 2]]), torch.tensor([[0, 11], [7, 1]])
    index = Sequence()(3, 2, queries, keys)
    offsets, rows = occurring_offsets(index, CPU)
    assert torch.equal(offsets, torch.arange(-8, 12))
    assert torch.equal(offsets[rows.codes()], keys[:, None, None] - queries[:, None, :, None])
    offsets, rows = occurring_offsets(index.clip(4), CPU)
    assert torch.equal(offsets, torch.arange(-4, 5))
    offsets, rows = occurring_offsets(Sequence()(0, 3, torch.ones(0, dtype=torch.long), torch.arange(3)), CPU)
    assert len(offsets) == rows.num_codes == 0


@pytest.mark.parametrize("encoding", ENCODINGS, ids=NAMES)
def test_padded_and_placed_elsewhere_equals_alone(encoding):
    torch.manual_seed(0)
    layer = rb.RelativeAttention(16, 4, encoding, dtype=torch.float64)
    for parameter in layer.encoding.parameters():
        torch.nn.init.normal_(parameter)
    tokens = torch.randn(1, 7, 16, dtype=torch.float64)
    alone = layer(tokens)
    for left in (0, 3):
        padded = torch.nn.functional.pad(tokens, (0, 0, left, 3 - left), value=1.0)
        padding = torch.ones(1, 10, dtype=torch.bool)
        padding[:, left : left + 7] = False
        positions = (torch.arange(10) - left).clamp(min=0)
        for given in (None, positions, positions + 100):
            out = layer(padded, key_padding_mask=padding, positions=given)
            torch.testing.assert_close(out[:, left : left + 7], alone)


@pytest.mark.parametrize("encoding", ENCODINGS[1:4], ids=NAMES[1:4])
def test_a_length_left_open_in_export(encoding):
    torch.manual_seed(0)
    layer = rb.RelativeAttention(16, 4, encoding).eval()
    length = torch.export.Dim("length", min=3, max=100)
    exported = torch.export.export(layer, (torch.randn(2, 9, 16),), dynamic_shapes=({1: length},))
    for tokens in (3, 40):
        x = torch.randn(2, tokens, 16)
        torch.testing.assert_close(exported.module()(x), layer(x))
