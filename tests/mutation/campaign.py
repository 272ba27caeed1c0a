"""`make mutants`: the share of mutants of the harness core that its own tests kill.

    python -m tests.mutation.campaign --sample 200 --minutes 60 --workers 2

The first call clones the commit, once for each worker, lets Cosmic Ray list every mutant, and runs the tests without a
mutant. A test that fails there is named, and left out from then on. Each call tries mutants until the sample or the
time ends. The next call continues, also if the last one was killed. A seed orders the mutants, so those that were tried
are a fair sample. Each call ends with the score and the survivors that equivalent.json does not explain.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import WorkItem, WorkResult

from harness.tools.suite import mutation
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
    trees = [tree / str(number) for number in range(options.workers)]
    for folder in trees:
        _renew(folder)
    copies = mutation.Copies(trees, end)
    with use_db(str(tree / _SESSION), WorkDB.Mode.open) as session:
        sample = mutation.ordered(session.work_items, options.seed)[: options.sample]
        results = dict(session.results)
        todo = [item for item in sample if item.job_id not in results]
        seconds = _unchanged(tree, sorted({str(item.mutations[0].module_path) for item in todo}), copies)
        for item, result in copies.each(todo, lambda copy, item: _try(copy, item, seconds)):
            results[item.job_id] = result
            session.set_result(item.job_id, result)
            print(f"{mutation.fate(result)} {mutation.place(item)}", flush=True)
        total = session.num_work_items
    tried = [(item, results[item.job_id]) for item in sample if item.job_id in results]
    print(
        f"\n{datetime.now(UTC):%Y-%m-%d}, commit {commit[:7]}, {len(tried)} of {total} mutants, seed {options.seed}\n"
    )
    return _report(tried)


def _command(copy: Path, *files: str) -> list[str]:
    return [sys.executable, "-m", "tests.mutation.tests_of_change", str(copy), *files]


def _try(copy: Path, item: WorkItem, seconds: dict[str, float]) -> WorkResult:
    """Run the tests of a mutant. It is killed if they take ten times as long as without it, and half a minute more."""
    limit = 30 + 10 * sum(seconds[file] for file in select(copy, str(item.mutations[0].module_path)))
    return mutation.attempt(copy, item, _command(copy), limit)


def _unchanged(tree: Path, modules: Sequence[str], copies: mutation.Copies) -> dict[str, float]:
    """The seconds that each file of tests takes without a mutant. Those of its tests that fail there are named."""
    place = tree / UNCHANGED
    known = json.loads(place.read_text()) if place.exists() else {}
    files = {file for module in modules for file in select(ROOT, module)} - known.keys()
    for file, result in copies.each(sorted(files), _run_unchanged):
        known[file] = result
        for test in result["failing"]:
            print(f"fails without a mutant and is left out: {test}", flush=True)
    place.write_text(json.dumps(known, indent=1) + "\n")
    return {file: result["seconds"] for file, result in known.items()}


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
    unfinished = tree / "unfinished.sqlite"
    with use_db(str(unfinished), WorkDB.Mode.create) as session:
        session.add_work_items(mutation.planned(tree / "0", CORE))
    unfinished.rename(tree / _SESSION)


def _renew(copy: Path) -> None:
    """Make a clone that is missing, and take back what a call that was killed left in it."""
    if not copy.exists():
        _clone(copy)
    _git(copy, "checkout", "--quiet", "--", "harness")


def _clone(copy: Path) -> None:
    copy.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(copy)], check=True)


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


_MEMBER = re.compile(r"\bis( not)? (?=[A-Z]\w*\.[A-Z_]+\b)")


def _is_by_identity(before: str, after: str) -> bool:
    """Whether a mutant compares with a member of an Enum by equality, which is identity for these."""
    return any(
        f"{before[: found.start()]}{'!=' if found[1] else '=='} {before[found.end() :]}" == after
        for found in _MEMBER.finditer(before)
    )


def _report(tried: Sequence[tuple[WorkItem, WorkResult]]) -> int:
    """Print the score of each package and every survivor without a reason."""
    explained = {(load["module"], load["before"], load["after"]) for load in json.loads(EQUIVALENT.read_text())}
    counts: Counter[tuple[str, str]] = Counter()
    unexplained = []
    for item, result in tried:
        found = mutation.fate(result)
        if found is None:
            continue
        module = str(item.mutations[0].module_path)
        fate = mutation.KILLED
        if found == mutation.SURVIVED:
            change = mutation.change(result)
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
        before, after = mutation.change(result)
        print(f"\n{mutation.place(item)}\n  - {before}\n  + {after}")
    return int(bool(unexplained))


if __name__ == "__main__":
    sys.exit(main())
