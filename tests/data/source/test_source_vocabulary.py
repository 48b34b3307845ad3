import pytest

from relbias.data.source.python import parse_python
from relbias.data.source.vocabulary import SourceVocabulary, split_identifier


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("snake_case_name", ["snake", "case", "name"]),
        ("camelCase", ["camel", "case"]),
        ("HTTPServer", ["http", "server"]),
        ("getURL", ["get", "url"]),
        ("SIZE_MAX", ["size", "max"]),
        ("sha256Hash", ["sha", "256", "hash"]),
        ("utf8", ["utf", "8"]),
        ("größe", ["größe"]),
        ("变量", ["变量"]),
        ("__", ["__"]),
        ("x", ["x"]),
    ],
)
def test_identifiers_are_split(name, words):
    assert split_identifier(name) == words


def test_whole_tokens_by_frequency():
    sources = [parse_python("b = a + a"), parse_python("'text' if a else b = 1"), parse_python("c = b")]
    vocabulary = SourceVocabulary(sources)
    assert vocabulary.words[:3] == ("=", "a", "b")
    assert len(vocabulary) == 6 + 5
    assert vocabulary.encode(sources[0]).tolist() == [8, 6, 7, 9, 7]
    assert SourceVocabulary(reversed(sources)).words == vocabulary.words


def test_unknown_tokens_are_told_by_their_kinds():
    vocabulary = SourceVocabulary([])
    assert len(vocabulary) == 6
    assert vocabulary.encode(parse_python("x = 1\nreturn_ = 'a'\npass")).tolist() == [1, 3, 4, 1, 3, 5, 2]
    assert vocabulary.encode(parse_python("")).shape == (0,)


def test_words_of_identifiers():
    source = parse_python("read_file_name = read(file, 'a_b')")
    vocabulary = SourceVocabulary([source], max_words=2)
    assert set(vocabulary.words) == {"read", "file", "=", "(", ")", ",", "'a_b'"}
    codes = vocabulary.encode(source)
    assert codes.shape == (8, 2)
    assert codes[0].tolist() == [codes[2, 0], codes[4, 0]]
    assert codes[1:, 1].tolist() == [0] * 7
    assert vocabulary.encode(parse_python("")).shape == (0, 2)


def test_the_size_is_a_limit():
    vocabulary = SourceVocabulary([parse_python("a = a = b = c")], size=8)
    assert vocabulary.words == ("=", "a")
    with pytest.raises(ValueError, match="size"):
        SourceVocabulary([], size=5)
    with pytest.raises(ValueError, match="max_words"):
        SourceVocabulary([], max_words=0)
