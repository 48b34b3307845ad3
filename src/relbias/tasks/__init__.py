"""LightningModules: one base task, and a task for each kind of problem."""

from relbias._extras import extra

with extra("train"):
    from relbias.tasks.base import Task, warmup_cosine
    from relbias.tasks.image_classification import ImageClassification

__all__ = ["ImageClassification", "Task", "warmup_cosine"]
