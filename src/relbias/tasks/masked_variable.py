"""Which variable stood where a name is hidden."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import MeanMetric

from relbias.models import PointerHead
from relbias.tasks.source_code import Batch, SourceTask, of_variables


class MaskedVariable(SourceTask):
    """Points from a hidden name at the variable that stood there, among the function's own.

    The hidden token points at all other occurrences of the function's variables; the probability of a variable is the
    sum of those of its occurrences, and the loss is minus its logarithm (https://arxiv.org/abs/1904.01720).

    Logs train/loss per step, val/loss and val/accuracy per epoch, and after the test test/accuracy and
    test/accuracy_without_self, over the uses whose right name is not "self".

    Its arguments are those of :class:`~relbias.tasks.source_code.SourceTask`.

    Example:
        >>> from functools import partial
        >>> from relbias.models import SourceTransformer
        >>> task = MaskedVariable(partial(SourceTransformer, num_words=100, dim=16, depth=1), "shaw")
        >>> task.lr
        0.001
    """

    def make_heads(self) -> None:
        self.pointer = PointerHead(self.dim)
        self.val_shares: Any = nn.ModuleDict({"accuracy": MeanMetric()})
        self.test_shares: Any = nn.ModuleDict({"accuracy": MeanMetric(), "accuracy_without_self": MeanMetric()})

    def log_probabilities(self, batch: Batch) -> Tensor:
        """Of the variables for each of the hidden names, (Q, L)."""
        tokens = self(batch)
        items, places = batch["hidden"].unbind(dim=1)
        return of_variables(self.pointer(tokens[items, places], tokens[items]), batch["variables"][items])

    def check_batch(self, batch: Batch) -> None:
        """As the base class; and ValueError where a hidden name has no other occurrence to point at."""
        super().check_batch(batch)
        occurrences = batch["variables"][batch["hidden"][:, 0]] == batch["target"][:, None]
        if not bool(occurrences.any(dim=1).all()):
            raise ValueError("the data hides a name that occurs nowhere else in its function; leave it out")

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """The mean loss of the hidden names of a batch."""
        loss = F.nll_loss(self.log_probabilities(batch), batch["target"])
        self.log("train/loss", loss, prog_bar=True, batch_size=len(batch["target"]), sync_dist=True)
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Collects val/loss and val/accuracy."""
        found, target = self.log_probabilities(batch), batch["target"]
        self.log("val/loss", F.nll_loss(found, target), prog_bar=True, batch_size=len(target), sync_dist=True)
        self.collect("val", self.val_shares, {"accuracy": found.argmax(dim=1) == target})

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """Collects test/accuracy and test/accuracy_without_self."""
        right = self.log_probabilities(batch).argmax(dim=1) == batch["target"]
        flags = {"accuracy": right, "accuracy_without_self": right[~batch["is_self"]]}
        self.collect("test", self.test_shares, flags)

    def predict_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        """The right variable, the likeliest one, and the probabilities of both, (Q,) each.

        Variables are numbered in their functions.
        """
        probabilities = self.log_probabilities(batch).exp()
        probability, prediction = probabilities.max(dim=1)
        own = probabilities.gather(1, batch["target"][:, None])[:, 0]
        return {
            "label": batch["target"],
            "prediction": prediction,
            "probability": probability,
            "label_probability": own,
        }
