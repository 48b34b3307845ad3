"""Programs with a hidden or another name, beside those that are parsed anew with that name in the file."""

import functools
import heapq
import inspect
import textwrap

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.data.code_files import SOURCES, reparsed, unindented

from relbias.data.source.batches import Encoded, batch_of
from relbias.data.source.edges import program_edges
from relbias.data.source.functions import FileFunction
from relbias.data.source.node_types import NodeTypes
from relbias.data.source.own_variables import Visible, own_variables
from relbias.data.source.python import parse_python
from relbias.data.source.samples import as_it_is, with_another, with_hidden
from relbias.data.source.vocabulary import SourceVocabulary

OWN = """
class Tree:
    def walk(self, other, visit):
        def here(node):
            return visit(node) or other

        def there(node, here=here):
            return here(node)

        found = here(self) + there(other)
        for visit in found:
            self.walk(other, visit)
            other.walk(self, here)
        found += [here for here in found if here is not self]
        try:
            del visit
        except NameError as error:
            return error, found
        return (lambda other: other + found)(self)
"""
PARENTHESES = """
class Tree:
    def walk(self, other):
        def here(node):
            return node

        (self).walk(other), ((self)
            .walk)(other), (here)(other), (other).walk(self), self.walk(self)
        return (other.here)(self), here(self).walk(other)
"""
TEXTS = [
    OWN,
    PARENTHESES,
    *(unindented(text) for texts in SOURCES.values() for text in texts),
    *map(inspect.getsource, (heapq.merge, heapq.nsmallest, textwrap.dedent)),
    unindented(inspect.getsource(textwrap.TextWrapper._wrap_chunks)),
]


@functools.cache
def functions():
    """The text and the place of each function, the function as numbers, and the reads in it."""
    parsed = [parse_python(text) for text in TEXTS]
    vocabulary = SourceVocabulary(parsed, 200, max_words=3)
    types = NodeTypes(parsed)
    found = []
    for text, source in zip(TEXTS, parsed, strict=True):
        for place, function in enumerate(source.functions):
            encoded = numbers(source.part(function.first, function.last), vocabulary, types)
            if encoded.function.own.reads:
                found.append((text, place, encoded, (vocabulary, types)))
    return found


def numbers(source, vocabulary, types):
    return Encoded.of(FileFunction("", "", 0, source, own_variables(source)), vocabulary, types)


@st.composite
def uses(draw):
    """A function, a use in it, and the names that can stand there."""
    text, place, encoded, known = draw(st.sampled_from(functions()))
    token = draw(st.sampled_from(encoded.function.own.reads))
    return text, place, encoded, known, token, Visible(encoded.function.source, encoded.function.own).at(token)


def same(one, other):
    batches = batch_of([one]), batch_of([other])
    return [name for name, tensor in batches[0].items() if not tensor.equal(batches[1][name])]


def all_uses_of(text):
    return [
        (place, encoded, known, token)
        for own, place, encoded, known in functions()
        if own == text
        for token in encoded.function.own.reads
    ]


@settings(max_examples=60, deadline=None)
@given(uses(), st.data())
def test_no_other_name_at_a_hidden_use_changes_anything(use, data):
    text, place, encoded, known, token, names = use
    name = data.draw(st.sampled_from([*sorted(names), "zyx"]))
    changed = numbers(reparsed(text, place, {token: name}), *known)
    assert changed.function.source.tokens[token] == name
    assert changed.function.own.names == encoded.function.own.names
    assert same(with_hidden(encoded, [token]), with_hidden(changed, [token])) == []


@settings(max_examples=40, deadline=None)
@given(uses(), st.data())
def test_several_hidden_names_tell_nothing_of_each_other(use, data):
    text, place, encoded, known, token, _ = use
    tokens = {token, *data.draw(st.sets(st.sampled_from(encoded.function.own.reads)))}
    strange = numbers(reparsed(text, place, {token: f"zyx{token}" for token in tokens}), *known)
    row = with_hidden(encoded, sorted(tokens))
    assert same(row, with_hidden(strange, sorted(tokens))) == []
    assert (row.variables[sorted(tokens)] == -1).all()
    assert not row.words[sorted(tokens)].any()


@settings(max_examples=60, deadline=None)
@given(uses(), st.data())
def test_another_name_gives_what_the_file_with_that_name_does(use, data):
    text, place, encoded, known, token, names = use
    name = data.draw(st.sampled_from(sorted(names)))
    changed = numbers(reparsed(text, place, {token: name}), *known)
    assert same(with_another(encoded, token, name, names[name]), as_it_is(changed)) == []


@pytest.mark.parametrize(
    ("text", "use"), [(text, use) for text in (OWN, PARENTHESES) for use in range(len(all_uses_of(text)))]
)
def test_every_name_at_every_use_of_an_intricate_function(text, use):
    place, encoded, known, token = all_uses_of(text)[use]
    names = Visible(encoded.function.source, encoded.function.own).at(token)
    assert encoded.function.source.tokens[token] in names
    hidden = with_hidden(encoded, [token])
    for name, variable in names.items():
        changed = numbers(reparsed(text, place, {token: name}), *known)
        assert same(with_another(encoded, token, name, variable), as_it_is(changed)) == []
        assert same(hidden, with_hidden(changed, [token])) == []
    assert hidden.words[token].tolist() == [0, 0, 0]
    assert hidden.variables[token] == -1


def test_the_row_of_a_function_as_it_is():
    _, _, encoded, known = functions()[0]
    row = as_it_is(encoded)
    source = encoded.function.source
    assert np.array_equal(row.words, known[0].encode(source).numpy())
    edge_index, types = program_edges(source)
    sets = batch_of([row])["edges"][0]
    for i, j, kind in zip(*edge_index.tolist(), types.tolist(), strict=True):
        assert sets[i, j] >> kind & 1
        assert sets[j, i] >> (6 + kind) & 1
    assert sum(int(code).bit_count() for code in sets.flatten().tolist()) == 2 * len(
        {(i, j, kind) for i, j, kind in zip(*edge_index.tolist(), types.tolist(), strict=True)}
    )
