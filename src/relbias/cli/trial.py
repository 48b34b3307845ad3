"""Tries one batch before a training, so that what cannot be trained is refused before anything is written."""

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.seed import isolate_rng

from relbias.cli.build import Experiment


@torch.no_grad()
def try_batch(experiment: Experiment) -> None:
    """Gives the first validation batch to the task's check_batch, on the processor.

    Weights, the modes of modules and the states of the random generators stay as they are.

    Args:
        experiment: with or without a Trainer.

    Raises:
        ValueError: the task has no training_step, the data no validation batches, the training no end, or the network
            does not fit the data.
    """
    model, data, trainer = experiment.model, experiment.datamodule, experiment.trainer
    if type(model).training_step is LightningModule.training_step:
        raise ValueError(
            f"model.class_path is {type(model).__module__}.{type(model).__qualname__}, which has no training_step; "
            "give a task such as relbias.tasks.ImageClassification"
        )
    if trainer is not None and trainer.max_epochs == trainer.max_steps == -1:
        raise ValueError("the training has no end; give trainer.max_epochs or trainer.max_steps")
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with isolate_rng(include_cuda=False):
            data.prepare_data()
            data.setup("fit")
            loader = data.val_dataloader()
            batch = next(iter(loader[0] if isinstance(loader, list | tuple) else loader), None)
            if batch is None:
                raise ValueError("the data has no validation batch, and the best checkpoint is chosen by val/loss")
            model.check_batch(batch)
    except (RuntimeError, IndexError) as error:  # torch's, about shapes and types; other errors are faults
        raise ValueError(f"the network does not take the data: {' '.join(str(error).split())}") from error
    except MisconfigurationException as error:
        raise ValueError(" ".join(str(error).split())) from error
    finally:
        for module, mode in modes:
            module.training = mode
