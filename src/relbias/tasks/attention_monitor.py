"""A callback that logs what attention and its terms do in training."""

import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from relbias.attention.call import Call
from relbias.attention.masks import empty_rows, safe_softmax
from relbias.attention.observe import observe
from relbias.attention.reference import complete, contributions, logits


class AttentionMonitor(Callback):
    r"""Logs for each layer how spread its attention is and how much each term adds to the logits.

    For a layer such as ``blocks.0.attention`` of the task's network, over all items and heads and every pair (i, j)
    that no mask hides:

    - ``attention/blocks.0.attention/entropy``: the mean of :math:`-\sum_j a_{ij} \ln a_{ij}` over the queries, in
      nats, of the weights before dropout; a query that may attend to nothing is left out of the mean.
    - ``.../max_logit``: the largest finite logit.
    - ``.../b_min`` and ``.../b_max``: the range of the finite values of what b, times its gate, adds to the logits;
      likewise K for c (q_i + w) . K[r_ij], Q for c k_j . Q[r_ij] and u for c u . k_j. Terms of several relations are
      summed first. A rotation adds nothing and has no range.
    - ``.../V_norm_min`` and ``.../V_norm_max``: the smallest and the largest L2 norm of a row of V.

    All are of the forward pass of a training step itself, the first batch where several make a step and the first
    process where there are several, and go to every logger at that step. Nothing of the training changes. The
    numbers are computed by the reference, one layer at a time, so B H N M logits of one layer must fit in memory
    beside the step.

    Args:
        every_n_steps: log every n-th optimizer step, as `log_every_n_steps` of the Trainer counts them.

    Raises:
        ValueError: fewer than one step.

    Example:
        >>> AttentionMonitor(every_n_steps=100).every_n_steps
        100
    """

    def __init__(self, every_n_steps: int = 50) -> None:
        if every_n_steps < 1:
            raise ValueError(f"every_n_steps is {every_n_steps}, expected at least 1")
        self.every_n_steps = every_n_steps
        self._watching: ExitStack | None = None
        self._found: dict[str, dict[str, Tensor]] = {}
        self._logged_step = -1

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Counts anew."""
        self._logged_step = -1

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Begins to watch where it is the turn of this step."""
        self._stop()
        step = trainer.fit_loop.epoch_loop._batches_that_stepped  # the step of Lightning's own metrics
        if (step + 1) % self.every_n_steps or step == self._logged_step:
            return
        if trainer.loggers and trainer.is_global_zero:
            self._found, self._watching = {}, ExitStack()
            self._watching.enter_context(observe(pl_module, self._see))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Logs what was seen."""
        if self._watching is None:
            return
        self._stop()
        self._logged_step = trainer.fit_loop.epoch_loop._batches_that_stepped
        metrics = {
            "/".join(part for part in ("attention", layer.removeprefix("network."), name) if part): value
            for layer, measured in self._found.items()
            for name, value in _numbers(measured).items()
        }
        if not self._found:
            warnings.warn(
                "AttentionMonitor saw no attention of relbias in a training step; a compiled network hides it",
                stacklevel=2,
            )
        for logger in trainer.loggers if metrics else ():
            logger.log_metrics(metrics, step=self._logged_step)
            logger.save()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Ends the watch of a batch that was skipped."""
        self._stop()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Warns where a training was too short to log anything."""
        if self._logged_step < 0 and trainer.loggers and trainer.is_global_zero:
            warnings.warn(
                f"AttentionMonitor logged nothing: it logs every {self.every_n_steps} steps (every_n_steps), and the "
                "training had fewer",
                stacklevel=2,
            )

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Ends the watch of a batch that failed."""
        self._stop()

    def _stop(self) -> None:
        if self._watching is not None:
            self._watching.close()
            self._watching = None

    def _see(self, name: str, call: Call) -> None:
        measured, found = _measure(call), self._found.setdefault(name, {})
        for key, value in measured.items():
            found[key] = _join(key, found[key], value) if key in found else value


def _measure(call: Call) -> dict[str, Tensor]:
    """Scalars of one call: the sum of the entropies and the number of their queries, and the ranges."""
    call = complete(call)
    values = logits(call)
    if values.numel() == 0:
        return {}
    visible = values != -torch.inf
    rows = ~empty_rows(values)[..., 0]
    entropy = torch.special.entr(safe_softmax(values)).sum(dim=-1)
    measured = {
        "entropy": torch.where(rows, entropy, 0.0).sum(),
        "queries": rows.sum(),
        "max_logit": _range(values, visible)[1],
    }
    sums: dict[str, Tensor] = {}
    for name, part in contributions(call):
        sums[name] = sums[name] + part if name in sums else part
    for name, total in sums.items():
        measured[f"{name}_min"], measured[f"{name}_max"] = _range(total, visible)
    norms = [entry.V.norm(dim=-1).flatten() for entry in call.terms.entries if entry.V is not None]
    if norms:
        measured["V_norm_min"], measured["V_norm_max"] = torch.cat(norms).aminmax()
    return measured


def _range(values: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
    """The smallest and largest finite value among the visible pairs; inf and -inf where there is none."""
    counted = visible & values.isfinite()
    return torch.where(counted, values, torch.inf).amin(), torch.where(counted, values, -torch.inf).amax()


def _join(name: str, first: Tensor, second: Tensor) -> Tensor:
    """The number of two calls of one layer."""
    if name.endswith("_min"):
        return torch.minimum(first, second)
    return torch.maximum(first, second) if name.endswith("_max") or name == "max_logit" else first + second


def _numbers(measured: Mapping[str, Tensor]) -> dict[str, float]:
    """What is logged; nothing where no value was finite or no query had a key."""
    numbers = {name: value.item() for name, value in measured.items()}
    queries = numbers.pop("queries", 0)
    entropy = numbers.pop("entropy", 0.0)
    numbers = {name: value for name, value in numbers.items() if abs(value) != float("inf")}
    return {"entropy": entropy / queries, **numbers} if queries else numbers
