"""The defects that can be planted in a source file: one patch of one range of lines each, the same for the same text.

for defect in defects("toy/sorting.py", content, lines={3, 4}):
    print(defect.id, defect.patch(content))
"""

from __future__ import annotations

import ast
import difflib
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from harness.run.planting import deep_learning, general
from harness.run.planting.syntax import Edit, Site, Source

__all__ = ["FAMILIES", "Defect", "defects"]

FAMILIES = {"general": general.OPERATORS, "deep learning": deep_learning.OPERATORS}
_OPERATORS = {name: operator for family in FAMILIES.values() for name, operator in family.items()}


@dataclass(frozen=True)
class Defect:
    """One defect: where it is planted, and what stands there then."""

    file: str
    """The path from the project's root."""
    line: int
    operator: str
    index: int
    """Counts the defects of one operator on one line, from 0."""
    within: str
    """The qualified name of the function or class around it; empty at the module's level."""
    before: str
    after: str
    """The lines that the patch changes, without indentation at the beginning and space at the end."""
    edit: Edit

    @property
    def id(self) -> str:
        """Names it in this version of the file: file:line:operator:index."""
        return f"{self.file}:{self.line}:{self.operator}:{self.index}"

    @property
    def lines(self) -> range:
        """The numbers of the lines that the patch changes."""
        return range(self.line, self.line + self.before.count("\n") + 1)

    def planted(self, content: bytes) -> bytes:
        """The file with the defect."""
        return content[: self.edit.start] + self.edit.text.encode() + content[self.edit.end :]

    def patch(self, content: bytes) -> str:
        """A unified diff from the file to the file with the defect."""
        old, new = content.decode(), self.planted(content).decode()
        lines = difflib.unified_diff(
            old.splitlines(keepends=True), new.splitlines(keepends=True), f"a/{self.file}", f"b/{self.file}"
        )
        return "".join(lines)


def defects(file: str, content: bytes, lines: Collection[int]) -> list[Defect]:
    """The defects on these lines of a file, by place.

    Args:
        file: the path that their ids begin with.
        lines: counted from 1; a defect counts if one of its lines is among them.

    Returns:
        none if the file is not Python.
    """
    try:
        source = Source(content)
    except (SyntaxError, ValueError, RecursionError):
        return []
    found: dict[tuple[int, int, bytes], tuple[str, Edit, ast.AST]] = {}
    for node in _plantable(source.tree):
        for name, operator in _OPERATORS.items():
            for edit in operator(Site(source, node)):
                key = (edit.start, edit.end, edit.text.encode())
                if content[edit.start : edit.end] != key[2]:
                    found.setdefault(key, (name, edit, node))
    counts: Counter[tuple[int, str]] = Counter()
    result: list[Defect] = []
    for name, edit, node in sorted(found.values(), key=lambda one: (one[1].start, one[1].end, one[0], one[1].text)):
        first, last = source.line(edit.start), source.line(edit.end)
        if not any(line in lines for line in range(first, last + 1)):
            continue
        index = counts[first, name]
        counts[first, name] += 1
        begins, ends = content.rfind(b"\n", 0, edit.start) + 1, content.find(b"\n", edit.end)
        rest = content[edit.end : ends if ends >= 0 else len(content)]
        after = (content[begins : edit.start] + edit.text.encode() + rest).decode()
        before = source.lines(first, last)
        result.append(Defect(file, first, name, index, source.within(node), before.strip(), after.strip(), edit))
    return result


def _plantable(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes whose change can change what the code does, without annotations, messages and f-strings.

    Python 3.11 gives the nodes inside an f-string wrong places.
    """
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "type_params", "type_comment") or isinstance(node, ast.JoinedStr):
            continue
        if isinstance(node, (ast.Raise, ast.AnnAssign, ast.Assert)) and name in ("exc", "cause", "msg"):
            continue
        if isinstance(node, ast.If) and name == "body" and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _plantable(child)
