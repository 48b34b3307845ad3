"""The one base task: optimizer, weight decay groups and learning rate schedule."""

import math
from typing import Any, ClassVar, Literal

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import nn

from relbias.encodings import Encoding
from relbias.encodings.resize import Unit

# Batch norms share a private base class; every other norm stands for itself.
_NORMS = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm, nn.LocalResponseNorm, nn.RMSNorm)


def warmup_cosine(step: int, warmup_steps: int, total_steps: int) -> float:
    """The factor of the learning rate at a step: linear from 1 / warmup_steps to 1, then a half cosine towards 0.

    Args:
        step: optimizer steps taken so far, from 0.
        warmup_steps: length of the linear part; 0 starts at the full rate.
        total_steps: length of the whole training; the factor is 0 from there on.

    Returns:
        (step + 1) / warmup_steps in the warm-up, then (1 + cos(pi (step - warmup) / (total - warmup))) / 2.

    Example:
        >>> [round(warmup_cosine(step, 2, 6), 3) for step in range(7)]
        [0.5, 1.0, 1.0, 0.854, 0.5, 0.146, 0.0]
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    if step >= total_steps:
        return 0.0
    return 0.5 * (1.0 + math.cos(math.pi * (step - warmup_steps) / (total_steps - warmup_steps)))


def warmup_linear(step: int, warmup_steps: int, total_steps: int) -> float:
    """The factor of the learning rate at a step: linear from 1 / warmup_steps to 1, then linear to 0.

    Args:
        step: optimizer steps taken so far, from 0.
        warmup_steps: length of the first part; 0 starts at the full rate.
        total_steps: length of the whole training; the factor is 0 from there on.

    Returns:
        (step + 1) / warmup_steps in the warm-up, then (total - step) / (total - warmup).

    Example:
        >>> [round(warmup_linear(step, 2, 6), 3) for step in range(7)]
        [0.5, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0]
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    return max(0.0, (total_steps - step) / max(1, total_steps - warmup_steps))


DECAYS = {"cosine": warmup_cosine, "linear": warmup_linear}


class Task(LightningModule):
    """Trains a network with AdamW, a linear warm-up and a decay of the rate, counted in optimizer steps.

    A subclass adds the network and the steps. Gradient clipping is an option of the Trainer.

    Args:
        lr: the highest learning rate.
        weight_decay: AdamW's decoupled decay, for matrices only: biases, norms, every other parameter with one
            dimension, and all parameters of encodings (tables and strengths) are not decayed, because a decayed table
            forgets the rare offsets first. Nor are those that a model of timm names in `no_weight_decay`.
        warmup_epochs: length of the warm-up in epochs, a fraction allowed; shorter trainings are all warm-up.
        decay: of the rate after the warm-up: "cosine", see :func:`warmup_cosine`, or "linear", :func:`warmup_linear`.

    Raises:
        ValueError: a negative argument, another decay, or a training without an end.

    Example:
        >>> Task(lr=1e-3).weight_decay
        0.05
    """

    attention_figure: ClassVar[str | None] = None
    """How `relbias plot attention` draws a test sample, or None where it does not: "image" for tasks whose batches
    begin with images (B, C, H, W)."""
    extrapolation: ClassVar[str | None] = None
    """What the sizes of `relbias plot extrapolation` are, with their unit, such as "image side, pixels", or None where
    it draws no such task. What is drawn are the numbers that `test_step` logs. A task that sets it defines `size_of`
    and, where they apply, `check_size` and `prepare_for_size`; its data gives `test_dataloader_at(size)`, and where a
    batch alone does not tell its size also `size_of`."""
    extrapolation_metrics: ClassVar[tuple[str, ...] | None] = None
    """The numbers of the test that are drawn there, without "test/"; None for all."""

    def __init__(
        self,
        lr: float = 1e-3,
        weight_decay: float = 0.05,
        warmup_epochs: float = 5.0,
        decay: Literal["cosine", "linear"] = "cosine",
    ) -> None:
        super().__init__()
        for name, value in (("lr", lr), ("weight_decay", weight_decay), ("warmup_epochs", warmup_epochs)):
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} is {value}, expected a finite number of at least 0")
        self.lr = lr
        self.weight_decay = weight_decay
        if decay not in DECAYS:
            raise ValueError(f"decay is {decay!r}, expected one of {', '.join(DECAYS)}")
        self.warmup_epochs = warmup_epochs
        self.decay = decay

    def check_batch(self, batch: Any) -> None:
        """Called with one batch before a training, in evaluation mode and without gradients; here it takes any.

        Args:
            batch: what the validation dataloader gives.

        Raises:
            ValueError: the network does not fit the data or the task.
        """

    def size_of(self, batch: Any) -> int:
        """The size of a batch on the axis of `extrapolation`.

        Args:
            batch: what a dataloader gives.

        Raises:
            ValueError: the batch has no such size.
        """
        raise ValueError(f"{type(self).__name__} does not say the size of a batch; define size_of")

    def check_size(self, size: int) -> None:
        """Refuses a size that no network of this architecture can take; here none.

        Args:
            size: on the axis of `extrapolation`.

        Raises:
            ValueError: says what sizes there are.
        """

    def prepare_for_size(self, size: int, unit: Unit | None = None) -> None:
        """Makes the network take batches of another size, in place.

        Args:
            size: on the axis of `extrapolation`.
            unit: what an offset in a table keeps, see :meth:`relbias.encodings.Encoding.resize`; None resizes no table.

        Raises:
            ValueError: the network cannot take it, or a table would have to be resized and there is no unit.
        """
        raise ValueError(f"{type(self).__name__} takes no other sizes; define prepare_for_size")

    def parameter_groups(self) -> list[dict]:
        """The parameters that are decayed and those that are not, as AdamW's groups.

        Returns:
            Two groups with the keys ``params`` and ``weight_decay``: first the decayed, then the others.
        """
        spared = {
            id(parameter)
            for module in self.modules()
            if isinstance(module, (Encoding, *_NORMS))
            for parameter in module.parameters()
        }
        for module in self.modules():
            names: Any = getattr(module, "no_weight_decay", tuple)  # of timm: pos_embed, cls_token and the like
            spared |= {id(parameter) for name, parameter in module.named_parameters() if name in names()}
        decayed, others = [], []
        for name, parameter in self.named_parameters():
            if not parameter.requires_grad:
                continue
            is_matrix = parameter.ndim > 1 and not name.endswith("bias") and id(parameter) not in spared
            (decayed if is_matrix else others).append(parameter)
        return [
            {"params": decayed, "weight_decay": self.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]

    def setup(self, stage: str) -> None:
        """Notes the groups of a training, before a strategy that shards parameters hides their shapes."""
        if stage == "fit":
            self._groups = self.parameter_groups()

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """AdamW over :meth:`parameter_groups` with the warm-up and the decay, stepped after every optimizer step."""
        total = self.trainer.estimated_stepping_batches
        if not math.isfinite(total):
            raise ValueError("the training has no end; give trainer.max_epochs or trainer.max_steps")
        self.trainer.fit_loop.setup_data()  # the batches of an epoch are known from here on
        per_epoch = math.ceil(self.trainer.num_training_batches / self.trainer.accumulate_grad_batches)
        warmup = min(round(self.warmup_epochs * per_epoch), int(total))
        optimizer = torch.optim.AdamW(self._groups, lr=self.lr)
        factor = DECAYS[self.decay]
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: factor(step, warmup, int(total)))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_train_start(self) -> None:
        """Sets the rate of the first step: a checkpoint brings the one of its own schedule, which may be shorter."""
        for scheduler in (config.scheduler for config in self.trainer.lr_scheduler_configs):
            if isinstance(scheduler, torch.optim.lr_scheduler.LambdaLR):
                for group, rate, factor in zip(
                    scheduler.optimizer.param_groups, scheduler.base_lrs, scheduler.lr_lambdas, strict=True
                ):
                    group["lr"] = rate * factor(scheduler.last_epoch)
