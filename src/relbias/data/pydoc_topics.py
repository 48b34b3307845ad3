"""English text that comes with Python itself: the topics of its help."""

from __future__ import annotations

import platform
from pydoc_data.topics import topics

from torch import Tensor

from relbias.data.parts import split_documents
from relbias.data.text import Text
from relbias.data.vocabulary import Characters


class PydocTopics(Text):
    """The characters of the topics of Python's help (`help("topics")`), about 79 texts with 465,000 characters.

    The text is that of the running Python, and other versions have other words in it: only runs with one version can be
    compared, and the `fingerprint` that a run folder keeps tells. The parts hold whole topics, by
    :func:`~relbias.data.parts.split_documents`: at least 5 % of the characters for validation and for the test each,
    whatever the seed. A character that the training part lacks is token 0. Packed, a topic is a document.

    Its arguments are those of :class:`~relbias.data.text.Text`.

    Example:
        >>> data = PydocTopics(length=64, test_lengths=[128])
        >>> data.setup()
        >>> tokens, targets = next(iter(data.train_dataloader()))
        >>> tokens.shape, data.vocabulary.decode(data.train.tokens[:12])
        (torch.Size([16, 64]), 'The "assert"')
    """

    @property
    def source(self) -> str:
        return f"pydoc_data.topics of Python {platform.python_version()}"

    def read(self) -> dict[str, list[Tensor]]:
        parts = split_documents(topics)
        self.vocabulary = Characters(parts["train"])
        return {name: [self.vocabulary.encode(text) for text in texts] for name, texts in parts.items()}
