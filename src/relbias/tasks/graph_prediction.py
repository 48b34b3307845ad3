"""Predicts targets of graphs or of their nodes by any network of PyG or of this library."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import MeanAbsoluteError, MeanSquaredError, Metric
from torchmetrics.classification import MulticlassAccuracy

from relbias.data.targets import Kind, as_targets
from relbias.encodings import EncodingSpec
from relbias.relations import PAIR_VALUES
from relbias.tasks.base import Task
from relbias.tasks.graph_metrics import LabelScores, OGBScore

INPUTS = ("x", "edge_index", "edge_attr", "batch", "pos", *PAIR_VALUES)
"""What a network is given of a batch, where the batch has it and the network's forward takes it."""


class GraphPrediction(Task):
    """Regression, classes or labels of graphs, or of the nodes of graphs; the data says which.

    The loss of a regression is the mean absolute error of targets that are normalised by the mean and the standard
    deviation of the training part; what is reported is in the targets' own unit. That of classes is the cross entropy,
    that of labels the binary one; targets that are NaN count nowhere.

    Logs train/loss per step, and per epoch val/loss and, after the test, test/: `mae` and `rmse` for a regression (in
    the targets' unit, over all columns), `accuracy` for classes, `ap` (average precision) and `auroc` for labels, means
    of the labels that have both values.

    Args:
        network: builds the network from the encoding. Its forward takes, by these names, some of x (V, F), edge_index
            (2, E), edge_attr, batch (V,), pos and the pair values hops, last_edges, walks and resistance of a batch of
            PyG; or any of them as keywords. It gives (B, num_outputs), or (V, num_outputs) where the targets are those
            of nodes.
        encoding: the one encoding key: a name, a mapping from relations to names or callables, or a callable
            (number of heads, head size, relation) -> Encoding.
        lr: the highest learning rate.
        weight_decay: see :class:`~relbias.tasks.base.Task`.
        warmup_epochs: see :class:`~relbias.tasks.base.Task`.
        decay: see :class:`~relbias.tasks.base.Task`.
        evaluator: the name of a data set of ogb, such as "ogbg-molhiv", by whose evaluator the test is scored too, as
            test/ogb_rocauc and the like; it needs the package ogb.

    Raises:
        ValueError: see :class:`~relbias.tasks.base.Task`; or an evaluator that ogb does not have, or ogb is missing.

    Example:
        >>> from relbias.models import graph_baseline
        >>> from relbias.data import GraphData
        >>> from relbias.data.molecules import NCIMolecules
        >>> data = GraphData(lambda: NCIMolecules(limit=20))
        >>> task = GraphPrediction(lambda encoding: graph_baseline.GIN(encoding, num_outputs=1, node_types=16), "none")
        >>> data.adapt_to(task)
        >>> data.setup()
        >>> task(next(iter(data.val_dataloader()))).shape
        torch.Size([2, 1])
    """

    def __init__(
        self,
        network: Callable[[EncodingSpec], nn.Module],
        encoding: EncodingSpec,
        lr: float = 1e-3,
        weight_decay: float = 0.05,
        warmup_epochs: float = 5.0,
        decay: Literal["cosine", "linear"] = "cosine",
        evaluator: str | None = None,
    ) -> None:
        super().__init__(lr=lr, weight_decay=weight_decay, warmup_epochs=warmup_epochs, decay=decay)
        self.evaluator = None if evaluator is None else OGBScore(evaluator)
        self.network = network(encoding)
        parameters = inspect.signature(self.network.forward).parameters
        takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        self._taken = [name for name in INPUTS if takes_any or name in parameters]
        self.kind: Kind | None = None
        self.extremes: Any = None
        self.register_buffer("target_mean", torch.zeros(1))
        self.register_buffer("target_std", torch.ones(1))

    def adapt(
        self, kind: Kind, num_outputs: int, mean: list[float] | None = None, std: list[float] | None = None
    ) -> None:
        """Says what is predicted; data modules call it once they know.

        Args:
            kind: "regression", "multiclass" or "multilabel".
            num_outputs: of the network: targets, classes or labels.
            mean: (num_outputs,), of the targets in the training part, for a regression.
            std: (num_outputs,), likewise.
        """
        if self.kind == kind and self.num_outputs == num_outputs:
            return  # what a checkpoint brought since stays
        self.kind, self.num_outputs = kind, num_outputs
        if kind == "regression":
            device = self.target_mean.device
            self.target_mean = torch.tensor(mean or [0.0] * num_outputs, device=device)
            self.target_std = torch.tensor(std or [1.0] * num_outputs, device=device)
        self.val_metrics, self.test_metrics = self._metrics(), self._metrics()

    def _metrics(self) -> nn.ModuleDict:
        metrics: dict[str, Metric]
        if self.kind == "regression":
            metrics = {"mae": MeanAbsoluteError(), "rmse": MeanSquaredError(squared=False)}
        elif self.kind == "multiclass":
            metrics = {"accuracy": MulticlassAccuracy(self.num_outputs, average="micro")}
        else:
            metrics = {"ap": LabelScores("ap"), "auroc": LabelScores("auroc")}
        return nn.ModuleDict(metrics).to(self.device)

    def forward(self, batch: Any) -> Tensor:
        """What the network gives for a batch of graphs: normalised targets or logits, (B or V, num_outputs)."""
        return self.network(**{name: batch[name] for name in self._taken if batch.get(name) is not None})

    def check_batch(self, batch: Any) -> None:
        """Raises ValueError where the data does not say what is predicted, or it does not fit the network.

        The network is given `extremes` too, where a data module has set that: a batch with the least and the greatest
        category of all graphs, for which a device that is not the processor would not say what is wrong.
        """
        if self.kind is None:
            raise ValueError("the data does not say what is predicted; give relbias.data.GraphData, or call adapt()")
        targets = as_targets(batch.y, self.kind)
        outputs = self(batch)
        if self.extremes is not None:
            self(self.extremes)
        expected = (len(targets), self.num_outputs)
        if outputs.shape != expected:
            what = "nodes" if len(targets) == batch.num_nodes != batch.num_graphs else "graphs"
            raise ValueError(
                f"the network gives {tuple(outputs.shape)} for a batch of {batch.num_graphs} graphs with "
                f"{batch.num_nodes} nodes in all, and the data has {self.num_outputs} "
                f"{'classes' if self.kind == 'multiclass' else 'targets'} of {what}, expected {expected}; give "
                f"--model.init_args.network.init_args.num_outputs {self.num_outputs}"
                + (" and --model.init_args.network.init_args.readout nodes" if what == "nodes" else "")
            )

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The loss of a batch."""
        outputs, targets = self._pairs(batch)
        loss = self._loss(outputs, targets)
        self.log("train/loss", loss, prog_bar=True, batch_size=len(targets), sync_dist=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Collects val/loss and the metrics."""
        outputs, targets = self._pairs(batch)
        loss = self._loss(outputs, targets)
        self.log("val/loss", loss, prog_bar=True, batch_size=len(targets), sync_dist=True)
        self._collect("val", self.val_metrics, outputs, targets)

    def test_step(self, batch: Any, batch_idx: int) -> None:
        """Collects the metrics."""
        outputs, targets = self._pairs(batch)
        self._collect("test", self.test_metrics, outputs, targets)
        if self.evaluator is not None:
            given = self._own_unit(outputs) if self.kind == "regression" else outputs
            self.evaluator.update(given.argmax(dim=-1) if self.kind == "multiclass" else given, targets)
            name = f"test/ogb_{self.evaluator.metric}"
            self.log(name, self.evaluator, on_step=False, on_epoch=True, batch_size=len(targets))

    def predict_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        """Columns (R,): target and prediction in the targets' unit; or label, prediction and probability.

        With several columns their number is added to the names, from 0.
        """
        outputs, targets = self._pairs(batch)
        if self.kind == "multiclass":
            probability, prediction = outputs.softmax(dim=-1).max(dim=-1)
            return {"label": targets, "prediction": prediction, "probability": probability}
        if self.kind == "regression":
            columns = {"target": targets, "prediction": self._own_unit(outputs)}
        else:
            columns = {"label": targets, "probability": outputs.sigmoid()}
        count = targets.shape[1]
        return {
            f"{name}_{column}" if count > 1 else name: values[:, column]
            for column in range(count)
            for name, values in columns.items()
        }

    def _pairs(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Outputs and targets of the graphs of a batch, or of its nodes that belong to the part."""
        outputs, targets = self(batch), as_targets(batch.y, self.kind)  # ty: ignore[invalid-argument-type]
        if "mask" in batch:
            outputs, targets = outputs[batch.mask], targets[batch.mask]
        return outputs, targets

    def _loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if self.kind == "multiclass":
            return F.cross_entropy(outputs, targets)
        known = ~targets.isnan()
        if self.kind == "regression":
            normalised = (targets - self.target_mean) / self.target_std
            losses = (outputs - torch.where(known, normalised, outputs.detach())).abs()
        else:
            losses = F.binary_cross_entropy_with_logits(outputs, targets.nan_to_num(), reduction="none")
        return (losses * known).sum() / known.sum().clamp(min=1)

    def _own_unit(self, outputs: Tensor) -> Tensor:
        return outputs.float() * self.target_std + self.target_mean

    def _collect(self, stage: str, metrics: nn.ModuleDict, outputs: Tensor, targets: Tensor) -> None:
        if self.kind == "regression":
            known = ~targets.isnan()
            outputs, targets = self._own_unit(outputs)[known], targets[known]
        every: Any = metrics.items()
        for name, metric in every:
            if len(targets):
                metric.update(outputs, targets)
            self.log(f"{stage}/{name}", metric, on_step=False, on_epoch=True, batch_size=len(targets))
