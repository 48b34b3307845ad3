"""Any data set of PyG: graphs to be classified or measured, or one graph whose nodes are."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import Sampler

from relbias._extras import extra
from relbias.data.buckets import BucketOrder
from relbias.data.graph_parts import Graphs, extremes
from relbias.data.graph_splits import by_folds, by_names, by_shares, class_of, shuffled_by_class
from relbias.data.order import shuffled
from relbias.data.targets import KINDS, Kind, as_targets, check_finite, gather, is_per_node, kind_of
from relbias.relations.base import check_size

with extra("graph"):
    from torch_geometric.data import Data, Dataset
    from torch_geometric.loader import DataLoader

PARTS = ("train", "val", "test")


class GraphData(LightningDataModule):
    """A data set of PyG, of ogb or of one's own, in batches of PyG's DataLoader.

    The data set is made when it is first used, so that nothing is fetched before. Its parts are those of the masks
    train_mask, val_mask and test_mask, where it is one graph that has them; or its own, where its class has an argument
    `split` that is "train" by default (ZINC, LRGBDataset); or the folds of a cross-validation, where `folds` is given;
    or its own again, where it has a method `get_idx_split()` (ogb); or else a seeded random split. Folds and random
    splits are stratified by class.

    The problem is read off y: one row for a graph, or one for a node; see :func:`~relbias.data.targets.kind_of`. Where
    graphs have no x, their nodes have one feature, the category 0.

    Args:
        dataset: makes the data set: its class, or a function without arguments.
        batch_size: graphs per batch.
        buckets: whether a training batch holds graphs of similar size, so that little is padded. Networks that take
            statistics over a batch, such as batch norms, want graphs of all sizes in each.
        kind: of the problem, "regression", "multiclass" or "multilabel"; None reads it off y.
        transforms: applied to each graph once, in memory, such as `relbias.plugins.pyg.AddShortestPaths`.
        val_share: the share of the validation in a random split.
        test_share: the share of the test, likewise.
        split_seed: of a random split or of the folds, which do not depend on the seed of the training.
        folds: of a cross-validation, K; None for a random split.
        fold: k, from 0 to K - 1: the test is fold k, the validation fold k + 1 (modulo K), the training the others.
            "seed" takes the seed of the training modulo K, so that the seeds of `relbias table` are the folds. Where
            masks have several columns, k is the column.
        num_outputs: targets (T), or classes, that are expected; None for what is found. `relbias fit` keeps in the run
            folder what it found, this and the next two, so that data that has changed is noticed.
        target_mean: (T,), of the targets in the training part, in their unit; for a regression.
        target_std: (T,), likewise.
        num_workers: processes that load batches.

    Raises:
        ValueError: an argument out of its range.

    Example:
        >>> from relbias.data.molecules import NCIMolecules
        >>> data = GraphData(lambda: NCIMolecules(limit=50), batch_size=8)
        >>> data.setup()
        >>> data.kind, next(iter(data.train_dataloader())).num_graphs
        ('regression', 8)
    """

    def __init__(
        self,
        dataset: Callable[[], Dataset],
        batch_size: int = 32,
        buckets: bool = True,
        kind: Kind | None = None,
        transforms: list[Callable[[Any], Any]] | None = None,
        val_share: float = 0.1,
        test_share: float = 0.1,
        split_seed: int = 0,
        folds: int | None = None,
        fold: int | Literal["seed"] = 0,
        num_outputs: int | None = None,
        target_mean: list[float] | None = None,
        target_std: list[float] | None = None,
        num_workers: int = 0,
    ) -> None:
        super().__init__()
        check_size("batch_size", batch_size, 1)
        check_size("split_seed", split_seed, 0)
        check_size("num_workers", num_workers, 0)
        if kind not in (None, *KINDS):
            raise ValueError(f"kind is {kind!r}, expected one of {', '.join(KINDS)}")
        if not (0 < val_share < 1 and 0 < test_share < 1 and val_share + test_share < 1):
            raise ValueError(
                f"val_share is {val_share} and test_share is {test_share}, expected shares above 0, together below 1"
            )
        if folds is not None:
            check_size("folds", folds, 3)
        if fold != "seed":
            check_size("fold", fold, 0)
            if folds is not None and fold >= folds:
                raise ValueError(f"fold is {fold} and folds is {folds}, expected a fold from 0 to {folds - 1}")
        elif folds is None:
            raise ValueError("fold is 'seed', which needs the number of folds; give folds")
        self.make = dataset
        self.batch_size, self.buckets = batch_size, buckets
        self.kind: Kind | None = kind
        self.transforms = list(transforms or [])
        self.shares = (val_share, test_share)
        self.split_seed = split_seed
        self.folds, self.fold = folds, fold
        self.num_outputs, self.target_mean, self.target_std = num_outputs, target_mean, target_std
        self.num_workers = num_workers
        self.parts: dict[str, Graphs] | None = None
        self._task: Any = None
        self._extremes: Any = None

    @property
    def name(self) -> str:
        """The name of the data set's class, for messages."""
        return getattr(class_of(self.make), "__name__", "the data set")

    @property
    def has_own_splits(self) -> bool:
        """Whether the class of the data set has an argument `split` that is "train" by default."""
        try:
            parameter = inspect.signature(class_of(self.make)).parameters.get("split")
        except (TypeError, ValueError):
            return False
        return parameter is not None and parameter.default == "train"

    @property
    def found(self) -> dict[str, Any]:
        """The arguments that :meth:`setup` found in the data, for the configuration of a run."""
        names = ("kind", "num_outputs", "target_mean", "target_std")
        known = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return known if self.fold == "seed" else {**known, "fold": self.fold}

    def adapt_to(self, task: Any) -> None:
        """Remembers a task, which is told the kind of problem as soon as it is known.

        Args:
            task: with the method `adapt(kind, num_outputs, mean, std)`, such as `relbias.tasks.GraphPrediction`; its
                attribute `extremes` becomes a batch that has the least and the greatest category of all graphs.
        """
        self._task = task
        self._tell()

    def _tell(self) -> None:
        if self.kind is not None and self.num_outputs is not None and hasattr(self._task, "adapt"):
            self._task.adapt(self.kind, self.num_outputs, self.target_mean, self.target_std)
            self._task.extremes = self._extremes

    def prepare_data(self) -> None:
        """Makes the data set where it has a folder, so that one process alone fetches it."""
        if self.parts is None and "root" in inspect.signature(class_of(self.make)).parameters:
            self._made()

    def _made(self) -> list[Dataset]:
        """The data set, or those of the three parts."""
        make: Any = self.make
        return [make(split=part) for part in PARTS] if self.has_own_splits else [make()]

    def setup(self, stage: str | None = None) -> None:
        """Makes the data set, checks and splits it.

        Raises:
            ValueError: targets are missing or do not fit the graphs, a feature is NaN or infinite, or the problem is
                another than the one that is expected.
        """
        if self.parts is not None:
            return
        if self.fold == "seed":
            self.fold = torch.initial_seed() % (self.folds or 1)
        made = self._made()
        if self.folds is not None and len(made) > 1:
            raise ValueError(f"{self.name} has its own parts, and folds is {self.folds}; leave folds out")
        sources: list[Any] = [self._transformed(part) for part in made]
        per_node = [self._checked(source) for source in sources]
        if len(sources) == 3:
            parts = [Graphs(source, range(len(source))) for source in sources]
        elif len(sources[0]) == 1 and "train_mask" in sources[0][0]:
            parts = [Graphs(sources[0], [0], self._mask(sources[0][0], part)) for part in PARTS]
        elif per_node[0] and len(sources[0]) == 1:
            raise ValueError(f"{self.name} is one graph without train_mask, val_mask and test_mask; add them")
        else:
            parts = [Graphs(sources[0], chosen) for chosen in self._split(sources[0])]
        self._look(parts)
        self._extremes = extremes(sources)
        self.parts = dict(zip(PARTS, parts, strict=True))
        self._tell()

    def _transformed(self, graphs: Any) -> Any:
        if not len(graphs):
            raise ValueError(f"{self.name} has no graphs")
        if not self.transforms:
            return graphs
        changed = []
        for position in range(len(graphs)):
            graph = graphs[position]
            for transform in self.transforms:
                graph = transform(graph)
            changed.append(graph)
        return changed

    def _checked(self, graphs: Any) -> bool:
        """Whether the targets are those of nodes."""
        if not isinstance(graphs[0], Data):
            raise ValueError(f"{self.name} gives {type(graphs[0]).__name__}, expected graphs of PyG's class Data")
        found = gather(graphs, "y")
        if found is None:
            raise ValueError(f"{self.name} has no targets: its graphs have no y")
        check_finite(graphs, self.name)
        if bool((found[1] == 1).all()):
            return False
        return is_per_node(found[1], [graphs[position].num_nodes for position in range(len(graphs))], self.name)

    def _mask(self, graph: Data, part: str) -> Tensor:
        mask = graph[f"{part}_mask"]
        if mask.ndim == 2:
            if self.fold >= mask.shape[1]:
                raise ValueError(f"fold is {self.fold}, and the masks of {self.name} have {mask.shape[1]} columns")
            mask = mask[:, self.fold]
        return mask.bool()

    def _split(self, graphs: Any) -> tuple[list[int], list[int], list[int]]:
        own = graphs.get_idx_split() if hasattr(graphs, "get_idx_split") else None
        if own is not None and self.folds is None:
            return by_names(own)
        y, _ = gather(graphs, "y")  # ty: ignore[not-iterable]
        is_classes = len(y) == len(graphs) and (self.kind or kind_of(y)) == "multiclass"
        order = shuffled_by_class(as_targets(y, "multiclass") if is_classes else None, len(graphs), self.split_seed)
        if self.folds is not None:
            return by_folds(order, self.folds, int(self.fold))
        return by_shares(order, *self.shares)

    def _look(self, parts: Sequence[Graphs]) -> None:
        """Finds the kind of problem, the number of outputs and the statistics of the targets, or compares them."""
        targets = [part.targets() for part in parts]
        kind = self.kind or kind_of(torch.cat(targets))
        values = [as_targets(y, kind) for y in targets]
        mean = std = None
        if kind == "multiclass":
            if min(int(classes.min()) for classes in values) < 0:
                raise ValueError(f"{self.name} has classes below 0 in y; number them from 0")
            count = 1 + max(int(classes.max()) for classes in values)
        else:
            count = values[0].shape[1]
        if kind == "regression":
            train = values[0].double()
            mean = train.nanmean(dim=0)
            spread = (train - mean).square().nanmean(dim=0).sqrt()
            if mean.isnan().any():
                raise ValueError(f"{self.name} has a column of targets that are all missing in the training part")
            mean, std = mean.tolist(), torch.where(spread > 0, spread, 1.0).tolist()
        self._compare("num_outputs", self.num_outputs, count, "classes" if kind == "multiclass" else "targets")
        for name, own, value in (("mean", self.target_mean, mean), ("std", self.target_std, std)):
            if own is not None and value is not None and not torch.allclose(torch.tensor(own), torch.tensor(value)):
                raise ValueError(
                    f"the training targets of {self.name} have {name} {value}, expected {own}: the data has changed "
                    "since the training"
                )
        self.kind, self.num_outputs = kind, count
        if self.target_mean is None or self.target_std is None:
            self.target_mean, self.target_std = mean, std

    def _compare(self, name: str, expected: int | None, value: int, what: str) -> None:
        if expected not in (None, value):
            raise ValueError(f"{self.name} has {value} {what}, and {name} is {expected}; give {value} or leave it out")

    def train_dataloader(self) -> DataLoader:
        """Training batches, in an order that depends on the seed and the epoch only."""
        part = self._part("train")
        if not self.buckets:
            return self._loader(part, shuffled(part, self.trainer))
        return self._loader(part, BucketOrder(part.sizes(), self.batch_size, self.trainer))

    def val_dataloader(self) -> DataLoader:
        """Validation graphs, in order."""
        return self._loader(self._part("val"))

    def test_dataloader(self) -> DataLoader:
        """Test graphs, in order."""
        return self._loader(self._part("test"))

    def predict_dataloader(self) -> DataLoader:
        """Test graphs, in order."""
        return self.test_dataloader()

    def _part(self, name: str) -> Graphs:
        if self.parts is None:
            raise ValueError("call setup() first")
        return self.parts[name]

    def _loader(self, part: Graphs, sampler: Sampler | None = None) -> DataLoader:
        graphs: Any = part
        return DataLoader(dataset=graphs, batch_size=self.batch_size, sampler=sampler, num_workers=self.num_workers)
