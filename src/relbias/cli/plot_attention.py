"""plot attention: where a trained model looks in the first sample of the test split."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor

from relbias._nearest import nearest
from relbias.attention import capture
from relbias.cli.build import Experiment
from relbias.encodings import Encoding
from relbias.plot import plot_attention_image
from relbias.relations import Grid
from relbias.tasks import Task

Draw = Callable[..., list[Path]]  # (path, title=...)


def attention(experiment: Experiment) -> Draw:
    """Runs the model on the first test sample, in evaluation mode, and prepares the figure of its task's kind.

    Args:
        experiment: with the weights loaded; needs no Trainer.

    Returns:
        A function of the PNG file and the title that draws and returns the two files.

    Raises:
        ValueError: the task has no such figure, the data no test sample, or the model no attention of this library.
    """
    task = experiment.model
    kind = task.attention_figure
    if kind is None or kind not in KINDS:
        what = "no attention_figure" if kind is None else f"the attention_figure {kind!r}"
        raise ValueError(
            f"the attention of {type(task).__name__} is not drawn: it has {what}; {nearest(kind or '', KINDS)}"
        )
    task.eval()
    return KINDS[kind](task, _first_batch(experiment.datamodule))


def _first_batch(data: LightningDataModule) -> Any:
    data.prepare_data()
    data.setup("test")
    loaders = data.test_dataloader()
    loaders = loaders if isinstance(loaders, list | tuple) else [loaders]
    batch = next((batch for loader in loaders for batch in loader), None)
    if batch is None:
        raise ValueError("the data has no test batch, whose first sample would be drawn")
    return batch


@torch.no_grad()
def _weights(task: Task, *inputs: Tensor) -> dict[str, Any]:
    """The weights (H, N, M) of the first sample by the name of the layer; a second call of a layer says so."""
    with capture(task) as captured:
        task(*inputs)
    weights: dict[str, Any] = {}
    calls: dict[str, int] = {}
    for record in captured:
        calls[record.name] = number = calls.get(record.name, 0) + 1
        weights[record.name if number == 1 else f"{record.name}, call {number}"] = record.weights[0].numpy()
    return weights


def _image(task: Task, batch: tuple[Tensor, Tensor]) -> Draw:
    """The first image; the grid and the prefix tokens are those of the model's encodings."""
    relations = (module.relation for module in task.modules() if isinstance(module, Encoding))
    grid = next((relation for relation in relations if isinstance(relation, Grid)), None)
    if grid is None:
        raise ValueError("the model has no encoding over a Grid, so nothing says where its tokens lie in the image")
    image = batch[0][:1]
    weights, size, p = _weights(task, image), (grid.height, grid.width), grid.prefix_tokens
    return lambda path, title: plot_attention_image(
        weights, image[0].numpy(), size, path, prefix_tokens=p, title=f"{title}: first test image"
    )


KINDS: dict[str, Callable[[Task, Any], Draw]] = {"image": _image}
