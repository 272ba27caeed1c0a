"""The defects that can be planted in a source file: one patch of one range of lines each, the same for the same text.

for defect in defects("toy/sorting.py", content):
    print(defect.id, defect.patch(content))
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

from harness.base import regular_file
from harness.contract.patch import Patch, PatchError
from harness.tools.planting import deep_learning, general, kernels, state
from harness.tools.planting.equivalent import Equivalent
from harness.tools.planting.syntax import Edit, Site, Source

__all__ = ["OPERATORS", "Defect", "Subjects", "defects", "given"]

_OPERATORS = {**general.OPERATORS, **state.OPERATORS, **deep_learning.OPERATORS}
OPERATORS = (*_OPERATORS, *kernels.OPERATORS)
"""The names of the operators."""


@dataclass(frozen=True)
class Defect:
    """One defect: its place, and the text that it puts there."""

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
        """Identifies the defect in this version of the file: file:line:operator:index."""
        return f"{self.file}:{self.line}:{self.operator}:{self.index}"

    @property
    def lines(self) -> range:
        """The numbers of the lines that the patch changes."""
        return range(self.line, self.line + self.before.count("\n") + 1)

    def is_named_by(self, entry: Equivalent) -> bool:
        """Whether an author's entry matches the defect."""
        return entry.names(self.file, self.within, self.before, self.after)

    def planted(self, content: bytes) -> bytes:
        """The content of the file with the defect."""
        return content[: self.edit.start] + self.edit.text.encode() + content[self.edit.end :]

    def patch(self, content: bytes) -> str:
        """A unified diff from the file to the file with the defect."""
        old, new = content.decode(), self.planted(content).decode()
        lines = difflib.unified_diff(
            old.splitlines(keepends=True), new.splitlines(keepends=True), f"a/{self.file}", f"b/{self.file}"
        )
        return "".join(lines)


def defects(file: str, content: bytes) -> list[Defect]:
    """The defects of a file, by place; none if it is neither Python nor a kernel.

    Args:
        file: the path that their ids begin with.
    """
    if kernels.is_kernel(file):
        return _listed(file, content, [(name, edit, "") for name, edit in kernels.edits(content.decode())])
    try:
        source = Source(content)
    except (SyntaxError, ValueError, RecursionError):
        return []
    return _listed(file, content, list(_in_python(source)))


def _in_python(source: Source) -> Iterator[tuple[str, Edit, str]]:
    """Each edit with its operator and the function or class around it."""
    for node in _plantable(source.tree):
        site = Site(source, node)
        for name, operator in _OPERATORS.items():
            for edit in operator(site):
                yield name, edit, source.within(node)
        if _is_kernel_text(node, source):
            start, end = source.span(node)
            text = source.content[start:end].decode()
            for name, edit in kernels.edits(text):
                yield name, Edit(start + edit.start, start + edit.end, edit.text), source.within(node)


def _is_kernel_text(node: ast.AST, source: Source) -> TypeGuard[ast.Constant]:
    """Whether a node is a string with a kernel, other than a docstring."""
    text = node.value if isinstance(node, ast.Constant) else None
    return isinstance(text, str) and kernels.looks_like_one(text) and not isinstance(source.parents[node], ast.Expr)


def _listed(file: str, content: bytes, edits: list[tuple[str, Edit, str]]) -> list[Defect]:
    """The defects of edits that change something, without duplicates, by place."""
    distinct: dict[tuple[int, int, bytes], tuple[str, Edit, str]] = {}
    for name, edit, within in edits:
        key = (edit.start, edit.end, edit.text.encode())
        if content[edit.start : edit.end] != key[2]:
            distinct.setdefault(key, (name, edit, within))
    counts: Counter[tuple[int, str]] = Counter()
    result: list[Defect] = []
    for name, edit, within in sorted(
        distinct.values(), key=lambda place: (place[1].start, place[1].end, place[0], place[1].text)
    ):
        first = content.count(b"\n", 0, edit.start) + 1
        index = counts[first, name]
        counts[first, name] += 1
        begins, ends = content.rfind(b"\n", 0, edit.start) + 1, content.find(b"\n", edit.end)
        ends = ends if ends >= 0 else len(content)
        before = content[begins:ends].decode()
        after = (content[begins : edit.start] + edit.text.encode() + content[edit.end : ends]).decode()
        result.append(Defect(file, first, name, index, within, before.strip(), after.strip(), edit))
    return result


def given(file: str, content: bytes, patches: Iterable[tuple[str, Patch]]) -> list[Defect]:
    """The defects that a user specifies for a file, each by its kind and its patch.

    Raises:
        PatchError: a patch does not fit the file.
    """
    old = content.decode()
    edits = []
    for kind, patch in patches:
        new = _changed(patch, old, is_python=not kernels.is_kernel(file))
        start = _common_prefix(old, new)
        end = len(old) - _common_prefix(old[start:][::-1], new[start:][::-1])
        text = new[start : end + len(new) - len(old)]
        edits.append((kind, Edit(len(old[:start].encode()), len(old[:end].encode()), text), patch.within))
    return _listed(file, content, edits)


def _common_prefix(one: str, other: str) -> int:
    """The length of the common prefix of two texts."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (left, right) in pairs if left != right), min(len(one), len(other)))


def _changed(patch: Patch, text: str, is_python: bool) -> str:
    if is_python:
        return patch.applied(text)
    if text.count(patch.before) != 1:
        raise PatchError(f"{patch.before!r} is {text.count(patch.before)} times in {patch.module}, not once")
    return text.replace(patch.before, patch.after)


class Subjects:
    """The source files of a campaign's subjects. Each is read once, and searched once for defects. Thread-safe."""

    def __init__(self, root: Path, patches: Mapping[str, Sequence[tuple[str, Patch]]] | None = None) -> None:
        """Args:
        root: of the project.
        patches: the only defects, by file; None for those of the operators.

        Raises:
            PatchError: a patch does not fit its file.
            OSError: a file cannot be read.
        """
        self._root = root
        self.given = patches is not None
        self._turn = threading.RLock()
        self._contents: dict[str, bytes] = {}
        self._defects: dict[str, list[Defect]] = {}
        if patches is not None:
            self._defects = {file: given(file, self.read(file), ones) for file, ones in patches.items()}

    def read(self, file: str) -> bytes:
        """The content of a file, the same for the whole campaign.

        Args:
            file: the path from the root.
        """
        with self._turn:
            if file not in self._contents:
                self._contents[file] = regular_file.read(self._root / file)
            return self._contents[file]

    def all(self, file: str) -> list[Defect]:
        """Every defect of a file; none if it is not there."""
        with self._turn:
            if file not in self._defects and self.given:
                return []
            if file not in self._defects:
                there = (self._root / file).is_file()
                self._defects[file] = defects(file, self.read(file)) if there else []
            return self._defects[file]

    def on(self, lines: Mapping[str, Collection[int]]) -> list[Defect]:
        """The defects that change one of these lines; lines are counted from 1, by file.

        A user's patch counts anywhere in such a file: it survives if no claim reaches it.
        """
        ones = [defect for file in sorted(lines) for defect in self.all(file)]
        return [defect for defect in ones if self.given or not set(defect.lines).isdisjoint(lines[defect.file])]

    def is_matched(self, entry: Equivalent) -> bool:
        """Whether an entry of an author's file names a defect."""
        return self.given or any(defect.is_named_by(entry) for defect in self.all(entry.file))

    def beyond(self, reached: Collection[str]) -> list[Defect]:
        """The patches of a user that are not among these ids."""
        ones = [defect for file in sorted(self._defects) for defect in self._defects[file]] if self.given else []
        return [defect for defect in ones if defect.id not in reached]

    def lines(self, file: str) -> frozenset[int]:
        """All lines of a file."""
        return frozenset(range(1, self.read(file).count(b"\n") + 2))

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of each file in which defects were sought, by path: those that a user's patches change, or all."""
        files = self._defects if self.given else self._contents
        return {file: hashlib.sha256(self.read(file)).hexdigest() for file in sorted(files)}


def _plantable(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes whose change can change what the code does, without annotations, messages and f-strings.

    Python 3.11 gives the nodes inside an f-string wrong places.
    """
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "type_params", "type_comment", "ctx") or isinstance(node, ast.JoinedStr):
            continue
        if isinstance(node, (ast.Raise, ast.AnnAssign, ast.Assert)) and name in ("exc", "cause", "msg"):
            continue
        if isinstance(node, ast.If) and name == "body" and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _plantable(child)
