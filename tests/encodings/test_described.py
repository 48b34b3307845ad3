import pytest

import relbias as rb
from relbias.encodings.base import find_encoding


@pytest.mark.parametrize("name", rb.list_encodings())
def test_every_encoding_says_what_it_is(name):
    cls = find_encoding(name)
    assert cls.formula
    assert "https://" in cls.paper
    assert cls.extrapolation in ("formula", "clipped", "none")
    assert cls.fixed_size <= (cls.extrapolation == "none")
