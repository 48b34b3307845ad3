"""Figures of encodings, of attention and of trainings, each with its numbers as CSV beside it."""

from relbias._extras import extra

with extra("plot"):
    from relbias.plot.attention_graph import plot_attention_graph
    from relbias.plot.attention_image import plot_attention_image
    from relbias.plot.attention_sequence import plot_attention_sequence
    from relbias.plot.attention_spectrogram import plot_attention_spectrogram
    from relbias.plot.bias import plot_bias
    from relbias.plot.curve import plot_curve
    from relbias.plot.training import plot_training
    from relbias.plot.values import Layer, layers

__all__ = [
    "Layer",
    "layers",
    "plot_attention_graph",
    "plot_attention_image",
    "plot_attention_sequence",
    "plot_attention_spectrogram",
    "plot_bias",
    "plot_curve",
    "plot_training",
]
