"""LightningModules: one base task, and a task for each kind of problem."""

from relbias._extras import extra

with extra("train"):
    from relbias.tasks.attention_monitor import AttentionMonitor
    from relbias.tasks.audio_classification import AudioClassification
    from relbias.tasks.base import Task, warmup_cosine
    from relbias.tasks.compile import Compile
    from relbias.tasks.graph_prediction import GraphPrediction
    from relbias.tasks.image_classification import ImageClassification
    from relbias.tasks.language_modeling import LanguageModeling
    from relbias.tasks.masked_variable import MaskedVariable
    from relbias.tasks.nan_guard import NaNGuard, NonFiniteError
    from relbias.tasks.next_note import NextNote
    from relbias.tasks.sequence_to_sequence import SequenceToSequence
    from relbias.tasks.speech_recognition import SpeechRecognition
    from relbias.tasks.variable_misuse import VariableMisuse

__all__ = [
    "AttentionMonitor",
    "AudioClassification",
    "Compile",
    "GraphPrediction",
    "ImageClassification",
    "LanguageModeling",
    "MaskedVariable",
    "NaNGuard",
    "NextNote",
    "NonFiniteError",
    "SequenceToSequence",
    "SpeechRecognition",
    "Task",
    "VariableMisuse",
    "warmup_cosine",
]
