"""Which use of a variable is wrong, and which variable should stand there."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import MeanMetric

from relbias.models import ClassificationHead, PointerHead
from relbias.tasks.source_code import Batch, SourceTask, of_variables

SHARES = ("clean", "located", "repaired")


class VariableMisuse(SourceTask):
    """Says whether a use of a variable in a function is wrong, which one, and what should stand there.

    As in https://arxiv.org/abs/1904.01720 one distribution is over all uses and "none is wrong", and another, from the
    wrong use, over the function's other variables, that of each the sum over its occurrences. The loss is the sum of
    both cross entropies, the second where there is a wrong use.

    Logs train/loss per step, val/loss and the shares per epoch, and after the test the shares: test/clean, of the right
    functions, in how many nothing is found; of the others test/located, in how many the wrong use is found, and
    test/repaired, in how many that and the variable that should stand there.

    Its arguments are those of :class:`~relbias.tasks.source_code.SourceTask`.

    Example:
        >>> from functools import partial
        >>> from relbias.models import SourceTransformer
        >>> task = VariableMisuse(partial(SourceTransformer, num_words=100, dim=16, depth=1), "shaw")
        >>> sorted(name for name, _ in task.named_children() if name != "network")
        ['location', 'nothing', 'repair', 'test_shares', 'val_shares']
    """

    def make_heads(self) -> None:
        self.location = nn.Linear(self.dim, 1)
        self.nothing = ClassificationHead(self.dim, 1)
        self.repair = PointerHead(self.dim)
        self.val_shares: Any = nn.ModuleDict({name: MeanMetric() for name in SHARES})
        self.test_shares: Any = nn.ModuleDict({name: MeanMetric() for name in SHARES})

    def locations(self, batch: Batch, tokens: Tensor) -> Tensor:
        """The logarithms of the probabilities of nothing wrong and of each token, (B, 1 + N)."""
        inside = torch.arange(tokens.shape[1], device=tokens.device) < batch["lengths"][:, None]
        nothing = self.nothing(tokens, ~inside)
        places = self.location(tokens)[..., 0].masked_fill(~batch["reads"], -torch.inf)
        return torch.cat((nothing, places), dim=1).float().log_softmax(dim=1)

    def repairs(self, batch: Batch, tokens: Tensor, items: Tensor, places: Tensor) -> Tensor:
        """The logarithms of the probabilities of the variables for some tokens, (Q, L).

        Args:
            batch: of B functions.
            tokens: (B, N, dim).
            items: (Q,) int64, the functions.
            places: (Q,) int64, the tokens, each a use of a variable; that variable is not among those it could be.
        """
        variables = batch["variables"][items]
        present = variables.gather(1, places[:, None])
        others = variables.masked_fill(variables == present, -1)
        return of_variables(self.repair(tokens[items, places], tokens[items]), others)

    def losses(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of a batch, and for each of the shares the flags (Q,) bool."""
        tokens, wrong = self(batch), batch["wrong"]
        located = self.locations(batch, tokens)
        loss = F.nll_loss(located, wrong + 1)
        found = located.argmax(dim=1) - 1 == wrong
        items = (wrong >= 0).nonzero()[:, 0]
        flags = {"clean": found[wrong < 0], "located": found[items], "repaired": found[items]}
        if len(items):
            repairs, target = self.repairs(batch, tokens, items, wrong[items]), batch["target"][items]
            loss = loss + F.nll_loss(repairs, target, reduction="sum") / len(wrong)
            flags["repaired"] = found[items] & (repairs.argmax(dim=1) == target)
        return loss, flags

    def check_batch(self, batch: Batch) -> None:
        """As the base class; and ValueError where the loss is not finite."""
        super().check_batch(batch)
        if not bool(self.losses(batch)[0].isfinite()):
            raise ValueError("the data has a wrong use that is no read of a variable, or the network gives nan")

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """The loss of a batch."""
        loss, _ = self.losses(batch)
        self.log("train/loss", loss, prog_bar=True, batch_size=len(batch["wrong"]), sync_dist=True)
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Collects val/loss and the shares."""
        loss, flags = self.losses(batch)
        self.log("val/loss", loss, prog_bar=True, batch_size=len(batch["wrong"]), sync_dist=True)
        self.collect("val", self.val_shares, flags)

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """Collects the shares."""
        self.collect("test", self.test_shares, self.losses(batch)[1])

    def predict_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        """What is wrong, found and suggested, (B,) each.

        `wrong` and `found` are tokens, -1 for none, `probability` that of what is found; `suggestion` is the number of
        the likeliest variable for the likeliest wrong use, found or not: `place`, whose probability is
        `place_probability`.
        """
        tokens = self(batch)
        located = self.locations(batch, tokens).exp()
        probability, found = located.max(dim=1)
        place_probability, place = located[:, 1:].max(dim=1)
        items = torch.arange(len(place), device=place.device)
        return {
            "wrong": batch["wrong"],
            "found": found - 1,
            "probability": probability,
            "place": place,
            "place_probability": place_probability,
            "suggestion": self.repairs(batch, tokens, items, place).argmax(dim=1),
        }
