"""Figures of encodings, attention, trainings and other sizes than theirs, each with its numbers as CSV beside it."""

from relbias._extras import extra

with extra("plot"):
    from relbias.plot.attention_graph import plot_attention_graph
    from relbias.plot.attention_image import plot_attention_image
    from relbias.plot.attention_sequence import plot_attention_sequence
    from relbias.plot.attention_spectrogram import plot_attention_spectrogram
    from relbias.plot.bias import plot_bias
    from relbias.plot.curve import plot_curve
    from relbias.plot.extrapolation import Measurement, plot_extrapolation
    from relbias.plot.training import plot_training
    from relbias.plot.values import Layer, layers

__all__ = [
    "Layer",
    "Measurement",
    "layers",
    "plot_attention_graph",
    "plot_attention_image",
    "plot_attention_sequence",
    "plot_attention_spectrogram",
    "plot_bias",
    "plot_curve",
    "plot_extrapolation",
    "plot_training",
]
