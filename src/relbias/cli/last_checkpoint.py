"""checkpoints/last.ckpt: everything that a training needs to go on as if it had never stopped."""

import time
from pathlib import Path
from typing import Any

from relbias._extras import extra
from relbias.cli.provenance import commit, machine
from relbias.cli.random_state import random_state, set_random_state

with extra("train"):
    import torch
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import Checkpoint

_RANDOM = "random_states"  # the checkpoint's key; a list with the states of each process


class LastCheckpoint(Checkpoint):
    """Saves last.ckpt when an epoch is over and all that it logged is written; adds random states to every checkpoint.

    Lightning's own last checkpoint comes before the rows of the epoch's averages, follows only after a best one, and
    holds no random states.

    Args:
        path: the file.

    Attributes:
        epochs: the finished epochs that the file holds; 0 where none was saved or loaded.
        resumed: for each time that the training was continued, the finished epochs that it continued from.
        metrics: what had been logged last, by name, in the checkpoint that was loaded.
        machines: the machines that it ran on.
        commits: the commits that it ran with.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.epochs = 0
        self.resumed: list[int] = []
        self.metrics: dict[str, float] = {}
        self.machines, self.commits = [machine()], [commit()]
        self._states: list[dict[str, Any]] = []
        self._before = 0.0
        self._start = time.perf_counter()

    @property
    def seconds(self) -> float:
        """The time of the training up to now, with that up to the checkpoints from which it was continued."""
        return self._before + time.perf_counter() - self._start

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Starts the clock."""
        self._start = time.perf_counter()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Goes on with the next epoch: Lightning takes a continued training with max_steps to be inside one."""
        loop = trainer.fit_loop
        if loop.restarting:
            for each in (loop, loop.epoch_loop, loop.epoch_loop.val_loop):
                each._restarting = False  # its setter would change nothing here
            loop.reset_restart_stage()
            loop.epoch_progress.increment_completed()

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Saves what the epoch before has left, or begins the first epoch after a checkpoint as it would have begun."""
        if self._states:
            set_random_state(self._states[trainer.global_rank if trainer.global_rank < len(self._states) else 0])
            self._states = []
            # The loader's processes have begun with the samples of epoch 0; now Lightning starts them anew.
            trainer.fit_loop._resuming_from_checkpoint = False
        self._save(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Saves what the last epoch has left, unless the training stopped inside it."""
        progress = trainer.fit_loop.epoch_loop.batch_progress
        if progress.is_last_batch or progress.current.ready >= trainer.num_training_batches:
            self._save(trainer)

    def _save(self, trainer: Trainer) -> None:
        finished = trainer.current_epoch  # of the next epoch, when the last one is over
        if finished > self.epochs:
            self.epochs = finished
            for logger in trainer.loggers:
                logger.save()  # the rows of callbacks too, which a Trainer does not write at once
            trainer.save_checkpoint(self.path)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Adds the random states, and where an epoch is over says so in the one form that Lightning continues from."""
        states = [random_state()]
        if trainer.world_size > 1:
            own = states[0]
            states = [own] * trainer.world_size
            torch.distributed.all_gather_object(states, own)
        checkpoint[_RANDOM] = states
        progress = checkpoint["loops"]["fit_loop"]["epoch_progress"]
        if progress["current"]["processed"] == progress["current"]["started"]:
            checkpoint["epoch"] = progress["current"]["processed"] - 1
            checkpoint["callbacks"][self.state_key].update(
                epochs=progress["current"]["processed"],
                metrics={name: value.item() for name, value in trainer.callback_metrics.items()},
            )
            for counts in progress.values():
                counts.update(ready=counts["started"], completed=counts["processed"] - 1)

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Keeps the random states and lets the paths of the best checkpoint follow a run folder that was moved."""
        self._states = checkpoint[_RANDOM]
        here = str(self.path.parent.resolve())
        for state in checkpoint["callbacks"].values():
            there = state.get("dirpath") if isinstance(state, dict) else None
            if there and there == checkpoint["callbacks"][self.state_key]["folder"]:
                for key in ("dirpath", "best_model_path", "kth_best_model_path"):
                    state[key] = state[key].replace(there, here)
                state["best_k_models"] = {k.replace(there, here): score for k, score in state["best_k_models"].items()}

    def state_dict(self) -> dict[str, Any]:
        """What the attributes hold, and the folder."""
        return {
            "folder": str(self.path.parent.resolve()),
            "epochs": self.epochs,
            "seconds": self.seconds,
            "resumed": self.resumed,
            "metrics": self.metrics,
            "machines": self.machines,
            "commits": self.commits,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from these."""
        self.epochs = state_dict["epochs"]
        self._before = state_dict["seconds"]
        self.resumed = [*state_dict["resumed"], self.epochs]
        self.metrics = state_dict["metrics"]
        self.machines = list(dict.fromkeys([*state_dict["machines"], *self.machines]))
        self.commits = list(dict.fromkeys([*state_dict["commits"], *self.commits]))
