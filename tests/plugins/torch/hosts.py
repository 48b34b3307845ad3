"""Small hosts of several libraries, each with a call that gives its output at the real tokens."""

import torch
import torch_geometric
import torchaudio
from torch import nn

LENGTHS = torch.tensor([9, 6])
PADDING = torch.arange(9) >= LENGTHS[:, None]  # True at padding
CAUSAL = torch.full((9, 9), -torch.inf).triu(1)


def tokens(dim, batch_first=True, seed=1):
    x = torch.randn(2, 9, dim, generator=torch.Generator().manual_seed(seed))
    return x if batch_first else x.transpose(0, 1)


def encoder(batch_first, padded=False, **arguments):
    layer = nn.TransformerEncoderLayer(32, 4, 48, dropout=0.0, batch_first=batch_first, **arguments)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=batch_first and not arguments)

    def call(model):
        out = model(tokens(32, batch_first), src_key_padding_mask=PADDING if padded else None)
        return (out if batch_first else out.transpose(0, 1))[~PADDING] if padded else out

    return model, call


def decoder(batch_first):
    layer = nn.TransformerDecoderLayer(32, 4, 48, dropout=0.0, batch_first=batch_first)
    memory = tokens(32, batch_first, seed=2)
    model = nn.TransformerDecoder(layer, 2)
    return model, lambda model: model(tokens(32, batch_first), memory, tgt_mask=CAUSAL)


def transformer():
    model = nn.Transformer(32, 4, 1, 1, 48, dropout=0.0, batch_first=True)
    return model, lambda model: model(tokens(32), tokens(32, seed=2), tgt_mask=CAUSAL)


def conformer():
    model = torchaudio.models.Conformer(32, 4, 48, num_layers=2, depthwise_conv_kernel_size=3)
    return model, lambda model: model(tokens(32), LENGTHS)[0][~PADDING]


def gps():
    convolution = torch_geometric.nn.GINConv(nn.Linear(32, 32))
    model = torch_geometric.nn.GPSConv(32, convolution, heads=4, attn_type="multihead")
    batch = torch.arange(2).repeat_interleave(LENGTHS)
    edges = torch.stack((torch.arange(14), torch.arange(1, 15)))
    return model, lambda model: model(tokens(32)[~PADDING], edges, batch)


HOSTS = {
    "encoder": lambda: encoder(True),
    "encoder, padded": lambda: encoder(True, padded=True),
    "encoder, norm first": lambda: encoder(True, padded=True, norm_first=True),
    "encoder, batch second": lambda: encoder(False),
    "encoder, batch second, padded": lambda: encoder(False, padded=True),
    "decoder": lambda: decoder(True),
    "decoder, batch second": lambda: decoder(False),
    "transformer": transformer,
    "conformer": conformer,
    "gps": gps,
}


def make(name):
    """A host in eval mode, and its call."""
    torch.manual_seed(0)
    model, call = HOSTS[name]()
    return model.eval(), call
