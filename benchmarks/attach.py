"""Times an attached vision transformer as ratios to the same model without, on one thread: python benchmarks/attach.py

For each encoding it measures the whole model, forward and a training step's forward and backward pass, and the first
attention module alone, with its projections. In each round all are called in turn, in another order each time; a ratio
is taken within a round. The table shows the median over the rounds and, in brackets, the quartiles. Beside ours are the
untouched model again, which shows the noise, and timm's own model with relative positions beside it without them.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from typing import Any

import numpy
import timm
import torch
from torch import Tensor, nn

import relbias as rb
from relbias.bench.timing import interleaved
from relbias.cli.provenance import commit, machine

ENCODINGS: dict[str, tuple[Any, dict[str, Any]]] = {
    "table": ("table", {}),
    "swin_v2 (log-CPB)": ("swin_v2", {}),
    "irpe, contextual on k": ("irpe", {"rpe_on": "k"}),
    "irpe, contextual on q, k and v": ("irpe", {"rpe_on": "qkv"}),
    "rope_axial": ("rope_axial", {}),
}
OWN = "timm's vit_relpos"


def main() -> None:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="vit_small_patch16_224", help="an architecture of timm")
    parser.add_argument("--own", default="vit_relpos_small_patch16_224", help="timm's own with relative positions")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--depth", type=int, help="blocks; the model's own number by default")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", help="the rows whose names have this in them")
    options = parser.parse_args()
    torch.manual_seed(0)
    depth = {} if options.depth is None else {"depth": options.depth}
    plain = timm.create_model(options.model, **depth)
    models = {"untouched": plain, "untouched, again": copy.deepcopy(plain)}
    for name, (encoding, arguments) in ENCODINGS.items():
        models[name] = copy.deepcopy(plain)
        rb.plugins.timm.attach(models[name], encoding, **arguments)
        for parameter in (p for key, p in models[name].named_parameters() if ".encoding." in key):
            nn.init.normal_(parameter, std=0.02)  # as if it had been trained
    own = timm.create_model(options.own, **depth)
    models[OWN], models["its plain twin"] = own, copy.deepcopy(own)
    for module in models["its plain twin"].modules():
        if hasattr(module, "rel_pos"):
            module.rel_pos = None
    if options.only:
        models = {name: model for name, model in models.items() if name == "untouched" or options.only in name}
    images = torch.randn(options.batch, 3, *plain.patch_embed.img_size)
    whole = [(name, model, images) for name, model in models.items()]
    attention = []
    for name, model in models.items():
        tokens = model.num_prefix_tokens + model.patch_embed.num_patches
        attention.append((name, model.blocks[0].attn, torch.randn(options.batch, tokens, model.embed_dim)))
    columns = [
        {name: make(module, x) for name, module, x in inputs}
        for inputs in (whole, attention)
        for make in (_forward, _training)
    ]
    measured = [_ratios(column, options.rounds) for column in columns]
    print("| encoding | forward | training | attention forward | attention training |\n|---|---|---|---|---|")
    for name in list(models)[1:]:
        if name != "its plain twin":
            print(f"| {name} | " + " | ".join(column[name] for column in measured) + " |")
    print(
        f"\n{options.model}, batch {options.batch}, float32, {options.rounds} rounds. {machine()}. Commit {commit()}."
    )
    print("Untouched: " + ", ".join(f"{column['untouched']} s" for column in measured) + ".")


def _forward(module: Any, x: Tensor) -> Callable[[], object]:
    @torch.no_grad()
    def run() -> object:
        module.eval()
        return module(x)

    return run


def _training(module: Any, x: Tensor) -> Callable[[], object]:
    def run() -> None:
        module.train()
        module.zero_grad()
        module(x).square().sum().backward()

    return run


def _ratios(runs: dict[str, Callable[[], object]], rounds: int) -> dict[str, str]:
    samples = interleaved(list(runs.values()), rounds, torch.device("cpu"))
    times = dict(zip(runs, map(numpy.array, samples), strict=True))
    rows = {"untouched": f"{numpy.median(times['untouched']):.3g}"}
    for name, values in times.items():
        if name != "untouched":
            low, middle, high = numpy.quantile(
                values / times["its plain twin" if name == OWN else "untouched"], [0.25, 0.5, 0.75]
            )
            rows[name] = f"{middle:.3f} ({low:.3f}-{high:.3f})"
    return rows


if __name__ == "__main__":
    main()
