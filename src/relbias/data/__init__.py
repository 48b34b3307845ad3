"""LightningDataModules: one data set each, with a fixed split. Each is loaded when it is first used."""

import importlib
from typing import TYPE_CHECKING, Any

from relbias._extras import extra
from relbias._nearest import nearest

if TYPE_CHECKING:
    from relbias.data.algorithmic import Algorithmic
    from relbias.data.audio import Audio
    from relbias.data.audio_folder import AudioFolder
    from relbias.data.chorales import Chorales
    from relbias.data.cifar10 import CIFAR10
    from relbias.data.digit_strings import DigitStrings
    from relbias.data.digits import Digits
    from relbias.data.esc50 import ESC50
    from relbias.data.graphs import GraphData
    from relbias.data.hugging_face_text import HuggingFaceText
    from relbias.data.image_folder import ImageFolder
    from relbias.data.masked_variables import MaskedVariables
    from relbias.data.misused_variables import MisusedVariables
    from relbias.data.pydoc_topics import PydocTopics
    from relbias.data.speech_commands import SpeechCommands
    from relbias.data.spoken_digits import SpokenDigits
    from relbias.data.text_files import TextFiles
    from relbias.data.tones import Tones

_MODULES = {
    "Algorithmic": "algorithmic",
    "Audio": "audio",
    "AudioFolder": "audio_folder",
    "CIFAR10": "cifar10",
    "DigitStrings": "digit_strings",
    "Chorales": "chorales",
    "Digits": "digits",
    "ESC50": "esc50",
    "GraphData": "graphs",
    "HuggingFaceText": "hugging_face_text",
    "ImageFolder": "image_folder",
    "MaskedVariables": "masked_variables",
    "MisusedVariables": "misused_variables",
    "PydocTopics": "pydoc_topics",
    "SpokenDigits": "spoken_digits",
    "SpeechCommands": "speech_commands",
    "TextFiles": "text_files",
    "Tones": "tones",
}

__all__ = [
    "CIFAR10",
    "ESC50",
    "Algorithmic",
    "Audio",
    "AudioFolder",
    "Chorales",
    "DigitStrings",
    "Digits",
    "GraphData",
    "HuggingFaceText",
    "ImageFolder",
    "MaskedVariables",
    "MisusedVariables",
    "PydocTopics",
    "SpeechCommands",
    "SpokenDigits",
    "TextFiles",
    "Tones",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        with extra("train"):
            return getattr(importlib.import_module(f"relbias.data.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'relbias.data' has no attribute {name!r}; {nearest(name, __all__)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
