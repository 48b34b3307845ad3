"""A callback that ends a training whose numbers are no longer finite, with the last good checkpoint intact."""

import math
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor


class NonFiniteError(ValueError):
    """A training loss or a weight is NaN or infinite; the message says which, when, and what to do."""


class NaNGuard(Callback):
    """Stops a training when its loss or a trainable weight is NaN or infinite, and keeps such weights off the disk.

    The loss of every training step is checked: at once on CPU; elsewhere a flag is kept on the device and read every
    `log_every_n_steps` steps, at the end of an epoch and before each checkpoint, so that no step waits for the
    device. The weights are checked at the end of an epoch and before each checkpoint, since a step can break them
    whose own loss was still finite. A checkpoint of non-finite weights is never written: the earlier file stays what
    it was, and is what to continue from. One that another callback writes with ``save_weights_only`` is not checked.

    Raises:
        NonFiniteError: from the training; a ValueError in one line.

    Example:
        >>> from lightning.pytorch import Trainer
        >>> trainer = Trainer(callbacks=[NaNGuard()], logger=False, enable_checkpointing=False, accelerator="cpu")
    """

    def __init__(self) -> None:
        self._first: tuple[Tensor, Tensor] | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Forgets an earlier training."""
        self._first = None

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Notes the loss, and reads the flag where that costs nothing or it is time to."""
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        step = trainer.fit_loop.epoch_loop._batches_that_stepped  # the step of Lightning's own metrics
        if isinstance(loss, Tensor):  # or else the step was skipped, or optimised by hand
            self._note(loss.detach(), step)
        if trainer.strategy.root_device.type == "cpu" or trainer._logger_connector.should_update_logs:
            self._check_loss(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Checks the loss and the weights."""
        self._check_loss(trainer)
        _check_weights(trainer, pl_module)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Checks the loss and the weights before the file is opened, whoever saves."""
        self._check_loss(trainer)
        _check_weights(trainer, pl_module)

    def _note(self, loss: Tensor, step: int) -> None:
        """Keeps the step and the value of the first loss that is not finite, on its device; step -1 for none yet."""
        loss = torch.where(loss.isfinite(), 0, loss).sum()  # of a loss for each sample, only what is not finite
        if self._first is None or self._first[0].device != loss.device:
            self._first = torch.full((), -1, device=loss.device), torch.zeros_like(loss)
        first, value = self._first
        new = ~loss.isfinite() & (first < 0)
        self._first = torch.where(new, step, first), torch.where(new, loss, value)

    def _check_loss(self, trainer: Trainer) -> None:
        step, value = (-1, 0.0) if self._first is None else (int(self._first[0]), self._first[1].item())
        if not trainer.strategy.reduce_boolean_decision(step >= 0, all=False):
            return
        if step < 0:
            raise NonFiniteError(_message(trainer, "the training loss of another process is not finite", "in"))
        logged = trainer.callback_metrics.items()
        names = [name for name, number in logged if name.startswith("train") and not math.isfinite(number)]
        name = names[0] if names else "the loss of training_step"
        raise NonFiniteError(_message(trainer, f"{name} is {value} at step {step}", "of"))


def _check_weights(trainer: Trainer, module: LightningModule) -> None:
    weights = {name: weight for name, weight in module.named_parameters() if weight.requires_grad}
    if not weights:
        return
    finite = torch.stack([weight.detach().isfinite().all() for weight in weights.values()]).tolist()
    if not trainer.strategy.reduce_boolean_decision(not all(finite), all=False):
        return
    broken = [name for name, ok in zip(weights, finite, strict=True) if not ok]
    name = broken[0] if broken else "of another process"
    raise NonFiniteError(
        _message(trainer, f"the weight {name} is not finite after step {trainer.global_step - 1}", "of")
    )


def _message(trainer: Trainer, what: str, of: str) -> str:
    remedies = ["a lower learning rate"]
    if not trainer.gradient_clip_val:
        remedies.append("gradient_clip_val 1.0")
    if trainer.precision not in ("32-true", "64-true"):
        remedies.append("precision 32-true")
    return f"{what} {of} epoch {trainer.current_epoch}; try {' or '.join(remedies)}"
