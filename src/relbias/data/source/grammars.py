"""Source code of several languages through tree-sitter and its grammars, which repair syntax errors."""

from __future__ import annotations

import codecs
import importlib
import re
from bisect import bisect_left
from functools import cache
from typing import Any

import torch

from relbias._extras import extra
from relbias._nearest import nearest
from relbias.data.source.lines import Lines, clean
from relbias.data.source.parsed import KINDS, Function, ParsedSource, Problem, innermost

with extra("code"):
    from tree_sitter import Language, Node, Parser

LANGUAGES = ("python", "javascript", "java", "go")
"""The languages whose grammars the extra `code` brings."""
MAX_PROBLEMS = 50
"""So many syntax errors of a file are reported; the parser repairs all of them."""
STRINGS = frozenset(
    [
        "string",
        "template_string",
        "regex",
        "jsx_text",
        "string_literal",
        "character_literal",
        "interpreted_string_literal",
        "raw_string_literal",
        "rune_literal",
    ]
)
"""Nodes that are one token, whatever is in them."""
FUNCTIONS = frozenset(
    [
        "function_definition",
        "function_declaration",
        "generator_function_declaration",
        "function_expression",
        "generator_function",
        "arrow_function",
        "method_definition",
        "method_declaration",
        "constructor_declaration",
        "compact_constructor_declaration",
        "func_literal",
    ]
)
_NO_TOKENS = frozenset(
    ["comment", "line_comment", "block_comment", "html_comment", "hash_bang_line", "line_continuation"]
)
_NAMES = frozenset(["label_name", "__future__"])
"""Names whose nodes are not called identifiers; the last is a word of Python's grammar."""
_NUMBER = re.compile(r"\.?[0-9]")
_WORD = re.compile(r"[^\W0-9]|\$")


def parse_with_grammar(source: bytes | str, language: str) -> ParsedSource:
    """Tokens and syntax tree of a file or a snippet, with the tree-sitter grammar of its language.

    The nodes are the grammar's named ones, less the comments. Syntax errors are reported; the parser goes on behind
    them, and its tree has nodes ERROR there. Bytes are UTF-8, or UTF-16 with a byte order mark. Nothing that a text can
    hold raises.

    Args:
        source: the file's bytes, or the text.
        language: one of :data:`LANGUAGES`.

    Raises:
        ValueError: another language.
        MissingExtraError: tree-sitter or the grammar is not installed.

    Example:
        >>> parsed = parse_with_grammar("function f(x) { return x + 1 }", "javascript")
        >>> parsed.tokens[:3], parsed.node_types[:3], parsed.functions[0].name
        (('function', 'f', '('), ('program', 'function_declaration', 'identifier'), 'f')
        >>> print(parse_with_grammar("int x = ;", "java").problems[0])
        line 1, column 7: syntax error at '='
    """
    parser = _parser(language)
    problems: list[Problem] = []
    text = _text(source, problems)
    lines = Lines(text.split("\n"))
    root = parser.parse(text.encode()).root_node
    tokens: list[tuple[str, int, int, int]] = []  # text, kind, start, end
    node_types, parents, starts, ends = [root.type], [-1], [0], [len(text) + 1]
    functions: list[tuple[str, int, int, int]] = []
    waiting = [(child, 0) for child in reversed(root.children)]
    while waiting:
        node, above = waiting.pop()
        kind = node.type
        if kind in _NO_TOKENS:
            continue
        if (node.is_error or node.is_missing) and len(problems) < MAX_PROBLEMS:
            problem = _problem(node, lines)
            problems += [problem] if problem not in problems else []
        start, end = _offset(lines, node.start_point), _offset(lines, node.end_point)
        if node.is_named and not node.is_missing:
            parents.append(above)
            above = len(node_types)
            node_types.append(kind)
            starts.append(start)
            ends.append(end)
            if kind in FUNCTIONS:
                functions.append((_name(node), above, start, end))
        children = [] if kind in STRINGS else node.children
        waiting += [(child, above) for child in reversed(children)]
        if not children and text[start:end].strip():
            tokens.append((text[start:end], _kind(kind, text[start:end]), start, end))
    token_starts = [token[2] for token in tokens]
    return ParsedSource(
        language=language,
        tokens=tuple(token[0] for token in tokens),
        kinds=torch.tensor([token[1] for token in tokens], dtype=torch.int32),
        spans=torch.tensor(
            [(*lines.place(start), *lines.place(end)) for _, _, start, end in tokens], dtype=torch.int32
        ).view(-1, 4),
        parents=torch.tensor(parents, dtype=torch.int32),
        node_types=tuple(node_types),
        node_of_token=torch.tensor(innermost(token_starts, starts, ends), dtype=torch.int32),
        variable_of_token=torch.full((len(tokens),), -1, dtype=torch.int32),
        access_of_token=torch.zeros(len(tokens), dtype=torch.int32),
        functions=tuple(
            Function(name, node, bisect_left(token_starts, start), bisect_left(token_starts, end))
            for name, node, start, end in functions
        ),
        problems=tuple(problems),
    )


@cache
def _parser(language: str) -> Parser:
    if language not in LANGUAGES:
        raise ValueError(f"no grammar of {language!r}; {nearest(language, LANGUAGES)}")
    with extra("code"):
        grammar: Any = importlib.import_module(f"tree_sitter_{language}")
    pointer: object = grammar.language()
    return Parser(Language(pointer))


def _text(source: bytes | str, problems: list[Problem]) -> str:
    if isinstance(source, bytes):
        marked = source.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        try:
            source = source.decode("utf-16" if marked else "utf-8")
        except UnicodeDecodeError as error:
            problems.append(Problem(1, 0, f"no text in {error.encoding}: {error.reason} at byte {error.start}"))
            return ""
    source = clean(source).encode(errors="replace").decode()  # the parser takes no lone surrogates
    if "\0" in source:
        before = source[: source.index("\0")]
        problems.append(Problem(before.count("\n") + 1, len(before) - before.rfind("\n") - 1, "a NUL character"))
        source = source.replace("\0", " ")
    return source


def _offset(lines: Lines, point: tuple[int, int]) -> int:
    return lines.offset(point[0] + 1, point[1])


def _problem(node: Node, lines: Lines) -> Problem:
    line, column = lines.place(_offset(lines, node.start_point))
    if node.is_missing:
        return Problem(line, column, f"syntax error, expected {node.type!r}")
    text = (node.text or b"")[:400].decode(errors="replace")  # which may be the whole file
    return Problem(line, column, f"syntax error at {' '.join(text.split())[:40]!r}")


def _name(node: Node) -> str:
    name = node.child_by_field_name("name")
    return (name.text or b"").decode(errors="replace") if name else ""


def _kind(node_type: str, text: str) -> int:
    if node_type in STRINGS:
        return KINDS.index("string")
    if "identifier" in node_type or node_type in _NAMES:
        return KINDS.index("name")
    if _NUMBER.match(text):
        return KINDS.index("number")
    return KINDS.index("keyword" if _WORD.match(text) else "operator")
