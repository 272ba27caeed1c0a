"""`make mutants`: how many mutants of the harness core its own tests kill.

    python -m tests.mutation.campaign --sample 200 --minutes 60 --workers 2

The first call clones the commit, once for each worker, lets Cosmic Ray list every mutant, and runs the tests without a
mutant. A test that fails there is named, and left out from then on. Each call tries mutants until the sample or the
time ends. The next call continues, also if the last one was killed. A seed orders the mutants, so those that were tried
are a fair sample. Each call ends with the score and the survivors that equivalent.json does not explain.
"""

from __future__ import annotations

import argparse
import ast
import functools
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import attrs
from cosmic_ray.commands.init import init
from cosmic_ray.modules import find_modules
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkItem, WorkResult

from tests.mutation.tests_of_change import CACHE, UNCHANGED, select

ROOT = Path(__file__).parents[2]
CORE = ("harness/contract", "harness/judging", "harness/evidence")
EQUIVALENT = Path(__file__).with_name("equivalent.json")
"""Mutants that no test can kill: the module, the line, what the line becomes, and the reason."""
_SESSION = "session.sqlite"


def main() -> int:
    """Continue the campaign of the present commit; 1 if a survivor is not explained."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", type=Path, default=ROOT / "build" / "mutants", help="where the clone lies")
    parser.add_argument("--sample", type=int, default=200, help="how many mutants are tried")
    parser.add_argument("--minutes", type=float, default=60.0, help="after which no further mutant is begun")
    parser.add_argument("--seed", type=int, default=0, help="of the order of the mutants")
    parser.add_argument("--workers", type=int, default=1, help="how many mutants are tried at a time")
    options = parser.parse_args()
    tree, end = options.tree.resolve(), time.monotonic() + 60 * options.minutes
    commit = _git(ROOT, "rev-parse", "HEAD")
    if not (tree / _SESSION).exists() or _git(tree / "0", "rev-parse", "HEAD") != commit:
        _prepare(tree)
    workers = _Workers(tree, options.workers, end)
    with use_db(str(tree / _SESSION), WorkDB.Mode.open) as session:
        sample = sorted(session.work_items, key=lambda item: _order(item.mutations[0], options.seed))
        del sample[options.sample :]
        results = dict(session.results)
        todo = [item for item in sample if item.job_id not in results]
        seconds = _unchanged(tree, sorted({str(item.mutations[0].module_path) for item in todo}), workers)
        for item, result in workers.each(todo, lambda copy, item: _try(copy, item, seconds)):
            results[item.job_id] = result
            session.set_result(item.job_id, result)
            print(f"{result.test_outcome} {_place(item)}{' timeout' * (result.output == 'timeout')}", flush=True)
        total = session.num_work_items
    tried = [(item, results[item.job_id]) for item in sample if item.job_id in results]
    print(
        f"\n{datetime.now(UTC):%Y-%m-%d}, commit {commit[:7]}, {len(tried)} of {total} mutants, seed {options.seed}\n"
    )
    return _report(tried)


class _Workers:
    """Threads that each work in a clone of their own."""

    def __init__(self, tree: Path, count: int, end: float) -> None:
        """Make the clones that are missing, and take back what a call that was killed left in them."""
        self._count, self._end = count, end
        self._copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(count):
            copy = tree / str(number)
            if not copy.exists():
                _clone(copy)
            _git(copy, "checkout", "--quiet", "--", "harness")
            self._copies.put(copy)

    def each(self, things: Sequence[Any], task: Callable[[Path, Any], Any]) -> Iterator[tuple[Any, Any]]:
        """Each thing with what a task makes of it in a clone, as it comes. None is begun after the end."""

        def one(thing: Any) -> tuple[Any, Any] | None:
            if time.monotonic() >= self._end:
                return None
            copy = self._copies.get()
            try:
                return thing, task(copy, thing)
            finally:
                self._copies.put(copy)

        with ThreadPoolExecutor(self._count) as pool:
            for future in as_completed([pool.submit(one, thing) for thing in things]):
                if done := future.result():
                    yield done


def _command(copy: Path, *files: str) -> list[str]:
    return [sys.executable, "-m", "tests.mutation.tests_of_change", str(copy), *files]


def _try(copy: Path, item: WorkItem, seconds: dict[str, float]) -> WorkResult:
    """Run the tests of a mutant. Half a minute and ten times what they take without it kill the mutant."""
    (mutation,) = item.mutations
    limit = 30 + 10 * sum(seconds[file] for file in select(copy, str(mutation.module_path)))
    there = attrs.evolve(mutation, module_path=copy / mutation.module_path)
    return mutate_and_test([there], shlex.join(_command(copy)), limit)


def _unchanged(tree: Path, modules: Sequence[str], workers: _Workers) -> dict[str, float]:
    """The seconds that each file of tests takes without a mutant. Those of its tests that fail there are named."""
    place = tree / UNCHANGED
    known = json.loads(place.read_text()) if place.exists() else {}
    files = {file for module in modules for file in select(ROOT, module)} - known.keys()
    for file, told in workers.each(sorted(files), _run_unchanged):
        known[file] = told
        for test in told["failing"]:
            print(f"fails without a mutant and is left out: {test}", flush=True)
    place.write_text(json.dumps(known, indent=1) + "\n")
    return {file: told["seconds"] for file, told in known.items()}


def _run_unchanged(copy: Path, file: str) -> dict[str, Any]:
    shutil.rmtree(copy / CACHE, ignore_errors=True)
    begun = time.monotonic()
    subprocess.run(_command(copy, file), capture_output=True)
    failures = copy / CACHE / "v/cache/lastfailed"
    failing = list(json.loads(failures.read_text())) if failures.exists() else []
    return {"seconds": time.monotonic() - begun, "failing": failing}


def _prepare(tree: Path) -> None:
    """Clone the commit and list its mutants."""
    shutil.rmtree(tree, ignore_errors=True)
    _clone(tree / "0")
    os.chdir(tree / "0")  # Cosmic Ray's paths are relative to it
    unfinished = tree / "unfinished.sqlite"
    with use_db(str(unfinished), WorkDB.Mode.create) as session:
        init(sorted(find_modules([Path(folder) for folder in CORE])), session, {})
        items = [item for item in session.work_items if not _is_annotation(item.mutations[0])]
        session.clear()
        session.add_work_items(items)
    unfinished.rename(tree / _SESSION)


def _clone(copy: Path) -> None:
    copy.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(copy)], check=True)


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _is_annotation(mutation: MutationSpec) -> bool:
    """Whether a mutant changes an annotation. `from __future__ import annotations` keeps these from being evaluated."""
    return any(start <= tuple(mutation.start_pos) < end for start, end in _annotations(mutation.module_path))


@functools.cache
def _annotations(module: Path) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where each annotation of a module begins and ends, as line and column."""
    nodes = [
        node
        for holder in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        for node in (getattr(holder, "annotation", None), getattr(holder, "returns", None))
        if isinstance(node, ast.expr)
    ]
    return [((one.lineno, one.col_offset), (one.end_lineno or 0, one.end_col_offset or 0)) for one in nodes]


def _order(mutation: MutationSpec, seed: int) -> bytes:
    told = f"{seed} {mutation.module_path} {mutation.operator_name} {mutation.operator_args} {mutation.occurrence}"
    return hashlib.sha256(told.encode()).digest()


def _place(item: WorkItem) -> str:
    (mutation,) = item.mutations
    return f"{mutation.module_path}:{mutation.start_pos[0]} {mutation.operator_name.removeprefix('core/')}"


def _change(result: WorkResult) -> tuple[str, str]:
    """The line that a mutant changes, and what it becomes."""
    lines = (result.diff or "").splitlines()
    before = [line[1:].strip() for line in lines if line.startswith("-") and not line.startswith("---")]
    after = [line[1:].strip() for line in lines if line.startswith("+") and not line.startswith("+++")]
    return "\n".join(before), "\n".join(after)


_MEMBER = re.compile(r"\bis( not)? (?=[A-Z]\w*\.[A-Z_]+\b)")


def _is_by_identity(before: str, after: str) -> bool:
    """Whether a mutant compares with a member of an Enum by equality, which is identity for these."""
    return any(
        f"{before[: found.start()]}{'!=' if found[1] else '=='} {before[found.end() :]}" == after
        for found in _MEMBER.finditer(before)
    )


def _report(tried: Sequence[tuple[WorkItem, WorkResult]]) -> int:
    """Print the score of each package and every survivor without a reason."""
    explained = {(one["module"], one["before"], one["after"]) for one in json.loads(EQUIVALENT.read_text())}
    counts: Counter[tuple[str, str]] = Counter()
    unexplained = []
    for item, result in tried:
        if result.test_outcome is TestOutcome.INCOMPETENT:  # the operator could not change the place
            continue
        module = str(item.mutations[0].module_path)
        fate = "killed"
        if result.test_outcome is TestOutcome.SURVIVED:
            change = _change(result)
            fate = "equivalent" if (module, *change) in explained or _is_by_identity(*change) else "survived"
        if fate == "survived":
            unexplained.append((item, result))
        for package in (str(Path(module).parent), "all"):
            counts[package, fate] += 1
    print("| package | killed | survived | equivalent | score |\n|---|---|---|---|---|")
    for package in (*CORE, "all"):
        killed, survived, equivalent = (counts[package, fate] for fate in ("killed", "survived", "equivalent"))
        score = f"{100 * killed / (killed + survived):.1f} %" if killed + survived else "-"
        print(f"| `{package}` | {killed} | {survived} | {equivalent} | {score} |")
    for item, result in unexplained:
        before, after = _change(result)
        print(f"\n{_place(item)}\n  - {before}\n  + {after}")
    return int(bool(unexplained))


if __name__ == "__main__":
    sys.exit(main())
