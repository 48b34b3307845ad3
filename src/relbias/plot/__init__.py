"""Figures of what an encoding has learned and of how a training went, each with its numbers as CSV beside it."""

from relbias._extras import extra

with extra("plot"):
    from relbias.plot.bias import plot_bias
    from relbias.plot.curve import plot_curve
    from relbias.plot.training import plot_training
    from relbias.plot.values import Layer, layers

__all__ = ["Layer", "layers", "plot_bias", "plot_curve", "plot_training"]
