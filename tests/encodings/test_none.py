from relbias.encodings import NoEncoding
from relbias.testing import EncodingTestCase


class TestNoEncoding(EncodingTestCase):
    encoding = NoEncoding

    def logits(self, encoding, q, k, scale, index):
        return scale * q @ k.mT
