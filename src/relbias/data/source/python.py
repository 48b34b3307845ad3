"""Python source through the standard library's own `ast` and `tokenize`."""

from __future__ import annotations

import ast
import io
import keyword
import token as token_types
import tokenize
import warnings
from bisect import bisect_left

import torch

from relbias.data.source.assignments import read_assignments
from relbias.data.source.calls import read_calls
from relbias.data.source.flow import read_flow
from relbias.data.source.lines import Lines, clean
from relbias.data.source.names import PythonFile, name_tokens
from relbias.data.source.nodes import read_nodes, span_of
from relbias.data.source.parsed import KINDS, Function, ParsedSource, Problem, innermost
from relbias.data.source.scopes import read_scopes

MAX_PROBLEMS = 50
"""After so many syntax errors the rest of a file is left out."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_Tokens = tuple[list[str], list[int], list[tuple[int, int, int, int]]]
"""The texts, the kinds and the spans of tokens."""


def parse_python(source: bytes | str) -> ParsedSource:
    """Tokens and syntax tree of a file or a snippet in Python.

    Of bytes, the encoding is the one that they declare (PEP 263), or else UTF-8. The tree is the grammar of the running
    Python. A statement with a syntax error is left out, from its beginning in the first column to the next such; the
    others are read, and the problem is reported. Nothing that a text can hold raises.

    Args:
        source: the file's bytes, or the text.

    Example:
        >>> parsed = parse_python("def f(x):\\n    return x x\\n\\nsize = 1")
        >>> print(parsed.problems[0])
        line 2, column 14: invalid syntax
        >>> parsed.tokens, parsed.spans[0].tolist()
        (('size', '=', '1'), [4, 0, 4, 4])
    """
    problems: list[Problem] = []
    text = _text(source, problems)
    tree, text_lines, (tokens, kinds, spans) = _tree(text.split("\n"), problems)
    lines = Lines(text_lines)
    offsets = [lines.starts[span[0] - 1] + span[1] for span in spans]
    ends = [lines.starts[span[2] - 1] + span[3] for span in spans]
    order, parents, starts, node_ends = read_nodes(tree, lines)
    nodes = innermost(offsets, starts, node_ends)
    for number, (token, node) in enumerate(zip(tokens, nodes, strict=True)):
        if token in keyword.softkwlist and type(order[node]).__name__ in ("Match", "TypeAlias"):
            kinds[number] = KINDS.index("keyword")
    file = PythonFile(lines, order, parents, starts, node_ends, tokens, offsets, ends)
    names = name_tokens(file)
    scopes = read_scopes(file, names)
    variables, accesses, functions = scopes.variables(len(tokens))
    return ParsedSource(
        language="python",
        tokens=tuple(tokens),
        kinds=torch.tensor(kinds, dtype=torch.int32),
        spans=torch.tensor(spans, dtype=torch.int32).view(-1, 4),
        parents=torch.tensor(parents, dtype=torch.int32),
        node_types=tuple(type(node).__name__ for node in order),
        node_of_token=torch.tensor(nodes, dtype=torch.int32),
        variable_of_token=torch.tensor(variables, dtype=torch.int32),
        access_of_token=torch.tensor(accesses, dtype=torch.int32),
        function_of_variable=torch.tensor(functions, dtype=torch.int32),
        flow=_edges(read_flow(file, names, nodes, [access > 0 for access in accesses])),
        computed_from=_edges(read_assignments(file, names)),
        calls=_edges(read_calls(file, names, scopes)),
        functions=_functions(order, offsets, lines),
        problems=tuple(problems),
    )


def _text(source: bytes | str, problems: list[Problem]) -> str:
    if isinstance(source, bytes):
        try:
            encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
            source = source.decode(encoding)
        except (SyntaxError, LookupError, ValueError) as error:  # "hex", say, is a codec, but not one of texts
            problems.append(Problem(1, 0, f"no text in the encoding that it declares: {error}"))
            return ""
    source = clean(source)
    if "\0" in source:
        before = source[: source.index("\0")]
        problems.append(Problem(before.count("\n") + 1, len(before) - before.rfind("\n") - 1, "a NUL character"))
        source = source.replace("\0", " ")
    return source


def _tree(lines: list[str], problems: list[Problem]) -> tuple[ast.Module, list[str], _Tokens]:
    """The tree, the lines without the statements that have errors, which are left empty, and the tokens of these."""
    for _ in range(MAX_PROBLEMS):
        try:
            text = "\n".join(lines)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about the text's own doubtful escapes
                return ast.parse(text), lines, _tokens(text)
        except (SyntaxError, tokenize.TokenError) as error:
            problem = _problem(error, len(lines))
            problems.append(problem)
            line = problem.line
            shorter = _without_statement(lines, line)
            if shorter == lines:
                break
            lines = shorter
        except (RecursionError, MemoryError, ValueError, OverflowError) as error:
            problems.append(Problem(1, 0, f"Python cannot parse it: {str(error) or 'nested too deep'}"))
            break
    else:
        problems.append(Problem(1, 0, f"more than {MAX_PROBLEMS} syntax errors, the rest is left out"))
    return ast.Module(body=[], type_ignores=[]), [""] * len(lines), ([], [], [])


def _problem(error: SyntaxError | tokenize.TokenError, num_lines: int) -> Problem:
    if isinstance(error, SyntaxError):
        line, column, message = error.lineno or 1, (error.offset or 1) - 1, str(error.msg)
    else:  # the two modules differ on some texts, such as lines with nothing but a backslash
        message, (line, column) = error.args
    return Problem(min(max(line, 1), num_lines), max(column, 0), message)


def _without_statement(lines: list[str], number: int) -> list[str]:
    """Empties the lines from the last that begins a statement, up to the given one, to the next that does."""
    first = number - 1
    while first > 0 and not (lines[first] and _begins(lines, first)):
        first -= 1
    last = number
    while last < len(lines) and not _begins(lines, last):
        last += 1
    return lines[:first] + [""] * (last - first) + lines[last:]


def _begins(lines: list[str], number: int) -> bool:
    line = lines[number]
    decorated = number > 0 and lines[number - 1].startswith("@")
    return bool(line) and not decorated and (line[0].isalpha() or line[0] in "_@") and not _goes_on(line)


def _goes_on(line: str) -> bool:
    return line.startswith(("else", "elif", "except", "finally"))


def _tokens(text: str) -> _Tokens:
    tokens: list[str] = []
    kinds: list[int] = []
    spans: list[tuple[int, int, int, int]] = []
    opened = 0  # how many formatted strings the place lies in: Python 3.12 and later tell their pieces
    starts = {getattr(token_types, name, None) for name in ("FSTRING_START", "TSTRING_START")} - {None}
    stops = {getattr(token_types, name, None) for name in ("FSTRING_END", "TSTRING_END")} - {None}
    pieces: list[tuple[int, int]] = []
    lines = text.split("\n")
    for kind, token, start, end, _ in tokenize.generate_tokens(io.StringIO(text).readline):
        if kind in starts:
            opened += 1
            pieces.append(start)
        elif kind in stops:
            opened -= 1
            start = pieces.pop()
            if not opened:
                tokens.append(_between(lines, start, end))
                kinds.append(KINDS.index("string"))
                spans.append((*start, *end))
        elif not opened and kind in _KINDS:
            is_keyword = kind == token_types.NAME and keyword.iskeyword(token)
            tokens.append(token)
            kinds.append(KINDS.index("keyword") if is_keyword else _KINDS[kind])
            spans.append((*start, *end))
    return tokens, kinds, spans


_KINDS = {
    token_types.NAME: KINDS.index("name"),
    token_types.OP: KINDS.index("operator"),
    token_types.NUMBER: KINDS.index("number"),
    token_types.STRING: KINDS.index("string"),
}


def _between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    if start[0] == end[0]:
        return lines[start[0] - 1][start[1] : end[1]]
    inner = lines[start[0] : end[0] - 1]
    return "\n".join([lines[start[0] - 1][start[1] :], *inner, lines[end[0] - 1][: end[1]]])


def _edges(pairs: list[tuple[int, int]]) -> torch.Tensor:
    return torch.tensor(pairs, dtype=torch.int32).view(-1, 2).T.contiguous()


def _functions(order: list[ast.AST], offsets: list[int], lines: Lines) -> tuple[Function, ...]:
    found = []
    for number, node in enumerate(order):
        if isinstance(node, FUNCTIONS):
            start, end = span_of(node, lines)
            found.append(Function(node.name, number, bisect_left(offsets, start), bisect_left(offsets, end)))
    return tuple(found)
