"""Scores of several labels, some of which are missing."""

import importlib
from typing import Any, Literal

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.functional.classification import binary_auroc, binary_average_precision
from torchmetrics.utilities import dim_zero_cat


class LabelScores(Metric):
    """The mean over labels of the average precision, or of the area under the ROC curve.

    A label is scored over the samples where it is not NaN; labels without a sample of both values do not count, as in
    ogb's evaluators.

    Args:
        score: "ap" or "auroc".

    Example:
        >>> metric = LabelScores("auroc")
        >>> metric.update(torch.tensor([[0.1], [2.0], [0.5]]), torch.tensor([[0.0], [1.0], [torch.nan]]))
        >>> metric.compute()
        tensor(1.)
    """

    full_state_update = False
    outputs: Any
    targets: Any

    def __init__(self, score: Literal["ap", "auroc"]) -> None:
        super().__init__()
        self.score = {"ap": binary_average_precision, "auroc": binary_auroc}[score]
        self.add_state("outputs", default=[], dist_reduce_fx="cat")
        self.add_state("targets", default=[], dist_reduce_fx="cat")

    def update(self, outputs: Tensor, targets: Tensor) -> None:
        """Adds logits (R, T) and labels (R, T) that are 0, 1 or NaN."""
        self.outputs.append(outputs.float())
        self.targets.append(targets)

    def compute(self) -> Tensor:
        """The score, from 0 to 1; NaN where no label has both values."""
        outputs, targets = dim_zero_cat(self.outputs), dim_zero_cat(self.targets)
        scores = []
        for column in range(targets.shape[1]):
            known = ~targets[:, column].isnan()
            labels = targets[known, column].long()
            if 0 < labels.sum() < len(labels):
                scores.append(self.score(outputs[known, column].sigmoid(), labels))
        return torch.stack(scores).mean() if scores else torch.tensor(torch.nan, device=outputs.device)


class OGBScore(Metric):
    """The score of ogb's own evaluator of one of its data sets of graphs (https://ogb.stanford.edu).

    Args:
        name: of the data set, such as "ogbg-molhiv".

    Attributes:
        metric: what ogb calls its score, such as "rocauc".

    Raises:
        ValueError: ogb is not installed, or has no such data set.
    """

    full_state_update = False
    outputs: Any
    targets: Any

    def __init__(self, name: str) -> None:
        super().__init__()
        try:
            ogb: Any = importlib.import_module("ogb.graphproppred")  # by name: it is in none of the extras
        except ModuleNotFoundError as error:
            raise ValueError(
                f"evaluator is {name!r}, and {error.name} is not installed; run: pip install ogb"
            ) from None
        try:
            self.evaluator = ogb.Evaluator(name)
        except ValueError as error:
            raise ValueError(f"ogb has no evaluator of {name!r}: {' '.join(str(error).split())[:200]}") from None
        self.metric: str = self.evaluator.eval_metric
        self.add_state("outputs", default=[], dist_reduce_fx="cat")
        self.add_state("targets", default=[], dist_reduce_fx="cat")

    def update(self, outputs: Tensor, targets: Tensor) -> None:
        """Adds what was predicted and what is true, (R,) or (R, T): numbers, classes or logits; targets may be NaN."""
        self.outputs.append(outputs)
        self.targets.append(targets)

    def compute(self) -> Tensor:
        """The score."""
        outputs, targets = (
            (values[:, None] if values.ndim == 1 else values).cpu().numpy()
            for values in (dim_zero_cat(self.outputs).float(), dim_zero_cat(self.targets))
        )
        score = self.evaluator.eval({"y_true": targets, "y_pred": outputs})[self.metric]
        return torch.tensor(float(score))
