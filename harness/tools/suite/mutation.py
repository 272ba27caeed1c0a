"""Mutants of code under test: Cosmic Ray's, one place changed in each, tried in copies of the tree side by side.

    items = ordered(planned(tree, ["src/package"]), seed=0)
    for item, result in Copies(folders, end).each(items, lambda copy, item: attempt(copy, item, command, limit)):
        print(fate(result), place(item), *change(result))

It needs the extra `mutation`.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue
from typing import Final, TypeVar, final

import attrs
from cosmic_ray.commands.init import init
from cosmic_ray.modules import find_modules
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkItem, WorkResult

from harness.base import regular_file

__all__ = ["KILLED", "SURVIVED", "TIMED_OUT", "Copies", "attempt", "change", "fate", "ordered", "place", "planned"]

T = TypeVar("T")
R = TypeVar("R")

KILLED: Final = "killed"
SURVIVED: Final = "survived"
TIMED_OUT: Final = "timed out"


class _Items(list[WorkItem]):
    """What Cosmic Ray's `init` asks of a data base."""

    add_work_items = list.extend


def planned(tree: Path, paths: Iterable[str]) -> list[WorkItem]:
    """Return every mutant of the modules at or below paths of a tree, without those of annotations."""
    modules = sorted({module for path in paths for module in find_modules([tree / path])})
    items = _Items()
    init(modules, items, {})
    return [
        WorkItem(item.job_id, [attrs.evolve(mutation, module_path=mutation.module_path.relative_to(tree))])
        for item in items
        for mutation in item.mutations
        if not _is_annotation(mutation)
    ]


def ordered(items: Iterable[WorkItem], seed: int) -> list[WorkItem]:
    """Return mutants in an order by a seed, so that the first ones are a fair sample."""
    return sorted(items, key=lambda item: _order(item.mutations[0], seed))


@final
class Copies:
    """Copies of a tree, each used by one thread at a time."""

    def __init__(self, copies: Sequence[Path], end: float) -> None:
        """Args:
        end: the time by `time.monotonic` after which nothing is begun.
        """
        self._count, self._end = len(copies), end
        self._free: SimpleQueue[Path] = SimpleQueue()
        for copy in copies:
            self._free.put(copy)

    def each(self, things: Sequence[T], task: Callable[[Path, T], R]) -> Iterator[tuple[T, R]]:
        """Yield each thing with what a task makes of it in a copy, as it comes."""

        def one(thing: T) -> tuple[T, R] | None:
            if time.monotonic() >= self._end:
                return None
            copy = self._free.get()
            try:
                return thing, task(copy, thing)
            finally:
                self._free.put(copy)

        with ThreadPoolExecutor(self._count) as pool:
            for future in as_completed([pool.submit(one, thing) for thing in things]):
                if done := future.result():
                    yield done


def attempt(copy: Path, item: WorkItem, command: Sequence[str], limit: float) -> WorkResult:
    """Change a copy, run the tests by a command, and undo the change. The mutant dies if they exceed the limit."""
    (mutation,) = item.mutations
    there = attrs.evolve(mutation, module_path=copy / mutation.module_path)
    return mutate_and_test([there], shlex.join(command), limit)


def fate(result: WorkResult) -> str | None:
    """Return the fate of a mutant; None if the operator could not change the place."""
    match result.test_outcome:
        case TestOutcome.SURVIVED:
            return SURVIVED
        case TestOutcome.KILLED:
            return TIMED_OUT if result.output == "timeout" else KILLED
    return None


def place(item: WorkItem) -> str:
    """Return a mutant's module, line and operator."""
    (mutation,) = item.mutations
    return f"{mutation.module_path}:{mutation.start_pos[0]} {mutation.operator_name.removeprefix('core/')}"


def change(result: WorkResult) -> tuple[str, str]:
    """Return the line that a mutant changes, and what it becomes."""
    lines = (result.diff or "").splitlines()
    before = [line[1:].strip() for line in lines if line.startswith("-") and not line.startswith("---")]
    after = [line[1:].strip() for line in lines if line.startswith("+") and not line.startswith("+++")]
    return "\n".join(before), "\n".join(after)


def _order(mutation: MutationSpec, seed: int) -> bytes:
    text = f"{seed} {mutation.module_path} {mutation.operator_name} {mutation.operator_args} {mutation.occurrence}"
    return hashlib.sha256(text.encode()).digest()


def _is_annotation(mutation: MutationSpec) -> bool:
    """Whether a mutant changes an annotation. `from __future__ import annotations` keeps these from being evaluated."""
    return any(start <= tuple(mutation.start_pos) < end for start, end in _annotations(mutation.module_path))


@functools.cache
def _annotations(module: Path) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where each annotation of a module begins and ends, as line and column."""
    nodes = [
        node
        for holder in ast.walk(ast.parse(regular_file.read(module)))
        for node in (getattr(holder, "annotation", None), getattr(holder, "returns", None))
        if isinstance(node, ast.expr)
    ]
    return [((node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)) for node in nodes]
