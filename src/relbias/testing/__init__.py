"""Tests that every encoding passes, for this library's own and for other people's."""

from relbias.testing.encoding import EncodingTestCase
from relbias.testing.input_encoding import InputEncodingTestCase
from relbias.testing.values import random_values

__all__ = ["EncodingTestCase", "InputEncodingTestCase", "random_values"]
