"""What the tasks on source code have in common: a network that gives tokens, and pointers at variables."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torchmetrics import MeanMetric

from relbias.encodings import EncodingSpec
from relbias.tasks.base import Task

INPUTS = ("words", "parents", "node_of_token", "node_types", "edges")
"""What a network is given of a batch."""

Batch = dict[str, Tensor]


class SourceTask(Task):
    """A network that gives a vector for each token of a function.

    Args:
        network: builds the network from the encoding, such as :class:`relbias.models.SourceTransformer`. It has the
            size of a token's vector as `dim`; its forward takes words (B, N, W) and, by name, parents (B, V),
            node_of_token (B, N), node_types (B, V), edges (B, N, N) and key_padding_mask (B, N), and gives (B, N, dim).
        encoding: the one encoding key: a name, a mapping from relations to names or callables, or a callable
            (number of heads, head size, relation) -> Encoding.
        lr: the highest learning rate.
        weight_decay: see :class:`~relbias.tasks.base.Task`.
        warmup_epochs: see :class:`~relbias.tasks.base.Task`.
        decay: see :class:`~relbias.tasks.base.Task`.

    Raises:
        ValueError: the network has no `dim`, or see :class:`~relbias.tasks.base.Task`.
    """

    def __init__(
        self,
        network: Callable[[EncodingSpec], nn.Module],
        encoding: EncodingSpec,
        lr: float = 1e-3,
        weight_decay: float = 0.05,
        warmup_epochs: float = 5.0,
        decay: Literal["cosine", "linear"] = "cosine",
    ) -> None:
        super().__init__(lr=lr, weight_decay=weight_decay, warmup_epochs=warmup_epochs, decay=decay)
        self.network: Any = network(encoding)
        if not isinstance(getattr(self.network, "dim", None), int):
            raise ValueError(
                f"{type(self.network).__name__} does not say the size of its vectors; give it an attribute dim"
            )
        self.dim: int = self.network.dim
        self.make_heads()

    @abstractmethod
    def make_heads(self) -> None:
        """Makes the parts that read the vectors of tokens, of the size `self.dim`, and the metrics."""

    def forward(self, batch: Batch) -> Tensor:
        """The vectors of the tokens, (B, N, dim)."""
        inside = torch.arange(batch["words"].shape[1], device=batch["lengths"].device) < batch["lengths"][:, None]
        return self.network(**{name: batch[name] for name in INPUTS}, key_padding_mask=~inside)

    def check_batch(self, batch: Batch) -> None:
        """Raises ValueError where the network does not take the batch, or gives no vector for each token."""
        expected = (*batch["words"].shape[:2], self.dim)
        found = self(batch)
        if found.shape != expected:
            raise ValueError(
                f"{type(self.network).__name__} gives {tuple(found.shape)} for words {tuple(batch['words'].shape)}, "
                f"expected {expected}, a vector for each token"
            )

    def collect(self, stage: str, shares: dict[str, MeanMetric], flags: dict[str, Tensor]) -> None:
        """Logs shares: of flags (Q,) bool each, how many are set over the whole epoch."""
        for name, metric in shares.items():
            if len(flags[name]):
                metric.update(flags[name].float())
            self.log(f"{stage}/{name}", metric, on_step=False, on_epoch=True, prog_bar=stage == "val")


def of_variables(scores: Tensor, variables: Tensor) -> Tensor:
    """The logarithms of the probabilities of variables, that of each the sum over its occurrences.

    Args:
        scores: (Q, N), of pointing at each token.
        variables: (Q, N) integers, the number of the variable that a token is an occurrence of; -1 for other tokens.

    Returns:
        (Q, L), L numbers of variables; -inf for one without an occurrence.

    Example:
        >>> of_variables(torch.zeros(1, 4), torch.tensor([[0, -1, 1, 1]])).exp()
        tensor([[0.3333, 0.6667]])
    """
    count = int(variables.max()) + 1 if variables.numel() else 0
    scores = scores.float().masked_fill(variables < 0, -torch.inf)
    numbers = torch.arange(count, device=scores.device)[:, None]
    by_variable = scores[:, None].masked_fill(variables[:, None] != numbers, -torch.inf)
    return (by_variable.logsumexp(dim=-1)).log_softmax(dim=-1)
