"""Whether a suite notices that a function of the code under test returns something else.

    unnoticed, tried = try_results(suite, ["src/package"], workspace=folder)

A function is *pseudo-tested* if tests execute it and do not need its result (Niedermayr, Juergens and Wagner, "Will my
tests tell me if I break this code?", 2016). Here, one `return` at a time gives what `replaced_result` names, in a copy
of the suite's folder. This does not need Cosmic Ray.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.base import regular_file
from harness.tools.suite import replaced_result
from harness.tools.suite.copies import copy_tree, passing, reaching, suite_of_copy
from harness.tools.suite.session import Suite

__all__ = ["try_results"]


@dataclass(frozen=True)
class _Return:
    """A statement with a result: its module, its line, and the result's place in the text as two offsets of bytes."""

    module: str
    line: int
    start: int
    end: int


def try_results(suite: Suite, paths: Sequence[str], *, workspace: Path) -> tuple[list[str], int]:
    """Replace the result of each `return` that a test reaches, one at a time, in a copy of the suite's folder.

    Args:
        paths: modules and packages of the code under test, relative to the suite's root.

    Returns:
        What no test notices, as `file:line NaN`, and how many replacements were tried.

    Raises:
        NotMeasured: the suite fails in a copy.
    """
    copy = workspace / "copy"
    copy_tree(suite.root, copy, workspace)
    modules = sorted({file.relative_to(copy).as_posix() for path in paths for file in _modules(copy / path)})
    copied = suite_of_copy(suite, copy, modules, workspace / "runs")
    traced = copied.run(traced={str(copy / module): module for module in modules})
    tests = passing(traced)
    unnoticed, tried = [], 0
    for statement in [statement for module in modules for statement in _returns(copy, module)]:
        chosen = reaching(copy, statement.module, statement.line, traced.lines, tests)
        for name in replaced_result.REPLACEMENTS if chosen else ():
            tried += 1
            if _passes(copied, copy / statement.module, statement, name, chosen):
                unnoticed.append(f"{statement.module}:{statement.line} {name}")
    return unnoticed, tried


def _passes(suite: Suite, file: Path, place: _Return, name: str, tests: Sequence[str]) -> bool:
    before = regular_file.read(file)
    call = f"__import__({replaced_result.__name__!r}, fromlist=['']).replaced({name!r}, ("
    file.write_bytes(
        before[: place.start] + call.encode() + before[place.start : place.end] + b"))" + before[place.end :]
    )
    try:
        return suite.passes(tests)
    finally:
        file.write_bytes(before)


def _modules(path: Path) -> Iterator[Path]:
    yield from [path] if path.suffix == ".py" else path.rglob("*.py")


def _returns(root: Path, module: str) -> Iterator[_Return]:
    text = regular_file.read(root / module)
    begins = [0]
    for line in text.splitlines(keepends=True):
        begins.append(begins[-1] + len(line))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Return) and node.value is not None:
            value = node.value
            start = begins[value.lineno - 1] + value.col_offset
            yield _Return(module, node.lineno, start, begins[(value.end_lineno or 0) - 1] + (value.end_col_offset or 0))
