"""A callback that compiles the network of a training."""

from lightning.pytorch import Callback, LightningModule, Trainer


class Compile(Callback):
    """Compiles the modules of a task with ``torch.compile`` for a training, in place.

    Each direct submodule that has parameters, such as the network, is compiled by itself; losses, metrics and logging
    are not. The names in the state_dict stay, so that a checkpoint fits the model with and without this callback.
    Evaluations of a finished run are not compiled.

    Args:
        backend: see ``torch.compile``; the default needs a C++ compiler on a processor.

    Example:
        >>> from torch import nn
        >>> from relbias.tasks import ImageClassification
        >>> task = ImageClassification(lambda encoding: nn.Sequential(nn.Flatten(), nn.Linear(256, 10)), "none")
        >>> names = list(task.state_dict())
        >>> Compile(backend="eager").setup(Trainer(logger=False, enable_checkpointing=False), task, "fit")
        >>> list(task.state_dict()) == names
        True
    """

    def __init__(self, backend: str = "inductor") -> None:
        self.backend = backend

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Compiles before the strategy wraps the task; Lightning calls it."""
        if stage != "fit":
            return
        for module in pl_module.children():
            if any(True for _ in module.parameters()):
                module.compile(backend=self.backend)
