"""Operators for kernels in CUDA C, WGSL and similar languages, in separate files or in Python strings.

They read tokens without a grammar. Each tries to keep the kernel compilable, because a kernel that does not compile
would count as killed. Numbers in attributes, directives and array types stay unchanged. Triton kernels are Python; the
operators for Python change them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

from harness.tools.planting.syntax import Edit

__all__ = ["OPERATORS", "edits", "is_kernel", "looks_like_one"]

OPERATORS: Final = (
    "kernel-constant",
    "kernel-operator",
    "kernel-comparison",
    "kernel-condition",
    "kernel-index",
    "kernel-guard",
    "kernel-function",
    "kernel-dropped",
)
_SUFFIXES: Final = frozenset({".cu", ".cuh", ".cl", ".wgsl", ".metal", ".hip", ".glsl", ".comp"})
_SIGNS: Final = re.compile(r"__global__|__device__|@compute|\bvar<\w|\bkernel\s+void\b|__kernel\b")
_TOKEN: Final = re.compile(
    r"(?P<skip>//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|\#[^\n]*|(?:@\w+|__launch_bounds__)(?:\([^()]*\))?"
    r"|\w+<(?:[^<>;(){}=&|]|\w+<[^<>;(){}=&|]*>)*>)"
    r"|(?P<number>(?:0[xX][0-9a-fA-F]+|(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?)[a-zA-Z]*)"
    r"|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<sign><<=|>>=|->|\+\+|--|&&|\|\||<<|>>|[-+*/%&|^<>=!]=|[-+*/%&|^<>=!?:;,.(){}\[\]])",
    re.DOTALL,
)
_ARITHMETIC: Final = {
    "+": "-", "-": "+", "*": "/", "/": "*", "%": "/", "<<": ">>", ">>": "<<", "+=": "-=", "-=": "+=", "*=": "/=",
    "/=": "*=",
}  # fmt: skip
_COMPARISONS: Final = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
_CONDITIONS: Final = {"&&": "||", "||": "&&"}
_FUNCTIONS: Final = {
    "max": "min", "min": "max", "fmaxf": "fminf", "fminf": "fmaxf", "sinf": "cosf", "cosf": "sinf", "sin": "cos",
    "cos": "sin", "rsqrtf": "sqrtf", "sqrtf": "rsqrtf", "inverseSqrt": "sqrt", "sqrt": "inverseSqrt",
}  # fmt: skip
_BARRIERS: Final = frozenset({"__syncthreads", "workgroupBarrier", "storageBarrier", "__syncwarp", "barrier"})
_STATEMENTS: Final = frozenset({"return", "in", "case", "else"})
_NO_OPERAND: Final = frozenset({
    *_STATEMENTS, "float", "double", "half", "int", "unsigned", "long", "short", "char", "bool",
    "void", "const", "auto", "float2", "float4", "__half", "__nv_bfloat16", "size_t",
})  # fmt: skip
"""Words after which a token is no binary operator: statements, and types before a pointer's star."""


_Token = re.Match[str]


def is_kernel(file: str) -> bool:
    """Whether a file is a kernel, by its name."""
    return PurePosixPath(file).suffix in _SUFFIXES


def looks_like_one(text: str) -> bool:
    """Whether a string holds a kernel."""
    return _SIGNS.search(text) is not None


def edits(text: str) -> Iterator[tuple[str, Edit]]:
    """Each edit of a kernel with its operator. Positions are offsets in bytes."""
    for name, start, end, new in _edits(text):
        yield name, Edit(len(text[:start].encode()), len(text[:end].encode()), new)


def _edits(text: str) -> Iterator[tuple[str, int, int, str]]:
    tokens = [token for token in _TOKEN.finditer(text) if token.lastgroup != "skip"]
    sizes: set[int] = set()
    for place, token in enumerate(tokens):
        if token[0] == "[" and _declares(tokens, place):
            sizes.update(range(place, _closing(tokens, place) or place))
        if place in sizes:  # a larger array changes nothing
            continue
        before = tokens[place - 1] if place else None
        if token.lastgroup == "number":
            yield from _number(token)
        elif token.lastgroup == "word":
            yield from _word(text, tokens, place)
        elif token[0] in _COMPARISONS:
            yield "kernel-comparison", token.start(), token.end(), _COMPARISONS[token[0]]
        elif token[0] in _CONDITIONS:
            yield "kernel-condition", token.start(), token.end(), _CONDITIONS[token[0]]
        elif token[0] in _ARITHMETIC and _is_operand(before):
            yield "kernel-operator", token.start(), token.end(), _ARITHMETIC[token[0]]
        elif token[0] == "[" and _is_operand(before) and (close := _closing(tokens, place)) is not None:
            inner = text[token.end() : tokens[close].start()]
            # An upper-case name is a constant, so the size of an array rather than an index.
            if inner.strip() and not inner.strip().isupper() and not inner.strip().rstrip("u").isdigit():
                yield "kernel-index", token.end(), tokens[close].start(), f"({inner}) + 1"


def _number(token: _Token) -> Iterator[tuple[str, int, int, str]]:
    """Another number with the same suffix."""
    match = re.fullmatch(r"(\d+)([uUlL]*|i)|((?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?)([fhFH]?)", token[0])
    if match is None:
        return
    if match[1] is not None:
        yield "kernel-constant", token.start(), token.end(), f"{int(match[1]) + 1}{match[2]}"
    else:
        yield "kernel-constant", token.start(), token.end(), f"{float(match[3]) * 2 or 1.0!r}{match[4]}"


def _word(text: str, tokens: list[_Token], place: int) -> Iterator[tuple[str, int, int, str]]:
    token, after = tokens[place], tokens[place + 1 : place + 2]
    if not after or after[0][0] != "(":
        return
    close = _closing(tokens, place + 1)
    if close is None:
        return
    if token[0] in _FUNCTIONS:
        yield "kernel-function", token.start(), token.end(), _FUNCTIONS[token[0]]
    if token[0] in _BARRIERS and close + 1 < len(tokens) and tokens[close + 1][0] == ";":
        yield "kernel-dropped", token.start(), tokens[close + 1].end(), ";"
    if token[0] == "if":
        yield "kernel-guard", after[0].start(), tokens[close].end(), "(true)"
        yield (
            "kernel-guard",
            after[0].start(),
            tokens[close].end(),
            f"(!{text[after[0].start() : tokens[close].end()]})",
        )


def _is_operand(token: _Token | None) -> bool:
    """Whether a value ends here, so that a following sign is a binary operator."""
    if token is None:
        return False
    if token.lastgroup == "word":
        return token[0] not in _NO_OPERAND
    return token.lastgroup == "number" or token[0] in (")", "]")


def _declares(tokens: list[_Token], place: int) -> bool:
    """Whether a bracket declares the size of an array: a type and a name precede it, not only a name."""
    name = place - 1
    while name > 0 and tokens[name][0] == "]":  # an earlier dimension
        depth = 0
        while name > 0:
            depth += {"]": 1, "[": -1}.get(tokens[name][0], 0)
            name -= 1
            if depth == 0:
                break
    return name > 0 and tokens[name - 1].lastgroup == "word" and tokens[name - 1][0] not in _STATEMENTS


def _closing(tokens: list[_Token], place: int) -> int | None:
    """The index of the matching closing bracket; None without one."""
    depth = 0
    for at in range(place, len(tokens)):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(tokens[at][0], 0)
        if depth == 0:
            return at
    return None
