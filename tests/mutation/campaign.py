"""`make mutants`: how many mutants of the harness core its own tests kill.

    python -m tests.mutation.campaign --sample 200 --minutes 60

The first call clones the commit and lets Cosmic Ray list every mutant. Each call tries mutants until the sample or the
time ends. The next call continues. A seed orders the mutants, so those that were
tried are a fair sample. Each call ends with the score and the survivors that equivalent.json does not explain.
"""

from __future__ import annotations

import argparse
import ast
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from cosmic_ray.commands.init import init
from cosmic_ray.modules import find_modules
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkItem, WorkResult

ROOT = Path(__file__).parents[2]
CORE = ("harness/contract", "harness/judging", "harness/evidence")
EQUIVALENT = Path(__file__).with_name("equivalent.json")
"""Mutants that no test can kill: the module, the line, what the line becomes, and the reason."""
_SESSION = Path("build/session.sqlite")
_COMMAND = f"{sys.executable} -m tests.mutation.tests_of_change"
_SECONDS = 600.0
"""What the tests of one mutant may take. All tests of a package take two minutes; a longer time kills the mutant."""


def main() -> int:
    """Continue the campaign of the present commit; 1 if a survivor is not explained."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", type=Path, default=ROOT / "build" / "mutants", help="where the clone lies")
    parser.add_argument("--sample", type=int, default=200, help="how many mutants are tried")
    parser.add_argument("--minutes", type=float, default=60.0, help="after which no further mutant is begun")
    parser.add_argument("--seed", type=int, default=0, help="of the order of the mutants")
    options = parser.parse_args()
    tree, end = options.tree.resolve(), time.monotonic() + 60 * options.minutes
    commit = _git(ROOT, "rev-parse", "HEAD")
    if not (tree / _SESSION).exists() or _git(tree, "rev-parse", "HEAD") != commit:
        _prepare(tree)
    os.chdir(tree)  # Cosmic Ray's paths are relative to it
    _git(tree, "checkout", "--quiet", "--", "harness")  # a call that was killed may have left a mutant
    with use_db(str(_SESSION), WorkDB.Mode.open) as session:
        sample = sorted(session.work_items, key=lambda item: _order(item.mutations[0], options.seed))
        del sample[options.sample :]
        results = dict(session.results)
        for number, item in enumerate(sample, 1):
            if item.job_id not in results and time.monotonic() < end:
                result = results[item.job_id] = mutate_and_test(item.mutations, _COMMAND, _SECONDS)
                session.set_result(item.job_id, result)
                print(f"{number}/{len(sample)} {result.test_outcome} {_place(item)}", flush=True)
        total = session.num_work_items
    tried = [(item, results[item.job_id]) for item in sample if item.job_id in results]
    print(
        f"\n{datetime.now(UTC):%Y-%m-%d}, commit {commit[:7]}, {len(tried)} of {total} mutants, seed {options.seed}\n"
    )
    return _report(tried)


def _prepare(tree: Path) -> None:
    """Clone the commit and list its mutants."""
    shutil.rmtree(tree, ignore_errors=True)
    tree.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(tree)], check=True)
    os.chdir(tree)
    _SESSION.parent.mkdir(exist_ok=True)
    unfinished = _SESSION.with_suffix(".unfinished")
    with use_db(str(unfinished), WorkDB.Mode.create) as session:
        init(sorted(find_modules([Path(folder) for folder in CORE])), session, {})
        items = [item for item in session.work_items if not _is_annotation(item.mutations[0])]
        session.clear()
        session.add_work_items(items)
    unfinished.rename(_SESSION)


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
            fate = "equivalent" if (module, *_change(result)) in explained else "survived"
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
