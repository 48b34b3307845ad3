"""Relative encodings inside torchaudio's wav2vec 2.0, HuBERT and WavLM."""

from relbias.plugins.torchaudio.plugin import attach, detach, settings

__all__ = ["attach", "detach", "settings"]
