"""LightningDataModules: one data set each, with a fixed split."""

from relbias._extras import extra

with extra("train"):
    from relbias.data.digits import Digits

__all__ = ["Digits"]
