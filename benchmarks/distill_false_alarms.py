"""How often the falsifiers of distillation are wrong: healthy runs that fail, and mutants that live.

Every seed is one run of the claim through the engine, as `harness run` does it: the subject and all mutants, in the
reduced profile on the CPU, without a bundle. Printed are the share of healthy runs that pass, for each mutant the
share that is killed on its declared clauses, and how far the healthy measurements scatter.

    python benchmarks/distill_false_alarms.py [--runs 30] [--first-seed 0] [-P KEY=VALUE] [ID…]

The exit status is 0 where every healthy run passed and every mutant that could run died in every run.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from harness import strictjson
from harness.contract import Contract
from harness.engine import Engine
from harness.events import Event
from harness.executors.local import LocalExecutor
from harness.judge import judge
from harness.machine.host import probe
from harness.machine.paths import cache_folder
from harness.plan import Options
from harness.project import Project
from harness.result import ClaimResult
from harness.verdict import Fate, Outcome

CLAIMS = ("F-DISTILL-SMOKE-001", "F-DISTILL-CKPT-EXPORT-001")
HEALTHY = "(the subject)"


def main() -> int:
    """Run, print the tables, and say by the exit status whether anything went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ids", nargs="*", default=CLAIMS, metavar="ID")
    parser.add_argument("--runs", type=int, default=30, help="seeds a claim")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("-P", dest="parameters", action="append", default=[], metavar="KEY=VALUE", help="VALUE is JSON")
    arguments = parser.parse_args()
    project = Project.find()
    overrides = {
        name: strictjson.loads(value) for name, _, value in (text.partition("=") for text in arguments.parameters)
    }
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.runs)
    sound = True
    for name in arguments.ids:
        contract = project.contract(name)
        results = list(runs(project, contract, seeds, overrides))
        table = rates(contract, results)
        sound &= bool((table["as declared"] == table["runs"]).all())
        print(f"\n{name}: {len(results)} runs\n\n{table.to_string(index=False)}\n\n{scatter(results).to_string()}")
    return 0 if sound else 1


def runs(
    project: Project, contract: Contract, seeds: Sequence[int], overrides: Mapping[str, Any]
) -> Iterator[ClaimResult]:
    """Run the claim once for each seed and yield what a bundle would have been made from."""
    kept: list[ClaimResult] = []

    def keep(result: ClaimResult) -> Path:
        kept.append(result)
        return project.evidence

    def ignore(event: Event) -> None:
        del event

    host = probe(project.root)
    engine = Engine(
        project,
        host,
        executor=lambda contract, gpu: LocalExecutor(project, contract, gpu, cache_folder()),
        seal=keep,
        emit=ignore,
        command="",
    )
    for seed in seeds:
        finished = engine.run([contract], Options(profile="reduced", device="cpu", parameters=overrides, seed=seed))
        if finished.interrupted:
            raise KeyboardInterrupt
        result = kept.pop()
        print(f"{contract.id} seed {seed}: {result.record.verdict.value} {result.record.reason}", file=sys.stderr)
        yield result


def rates(contract: Contract, results: Sequence[ClaimResult]) -> pd.DataFrame:
    """One row for the subject and one for each mutant: runs, how many came out as declared, and on which clauses."""
    outcomes = [judge(contract, result.subject.observation).outcome for result in results]
    passed = sum(outcome is Outcome.PASS for outcome in outcomes)
    rows = [{"trial": HEALTHY, "runs": len(results), "as declared": passed, "clauses": "every clause passes"}]
    for mutant in contract.mutants:
        fates = [next(one.fate for one in result.record.mutants if one.id == mutant.id) for result in results]
        ran = [fate for fate in fates if fate is not Fate.NOT_RUN]
        killed = sum(fate is Fate.KILLED for fate in ran)
        rows.append(
            {"trial": mutant.id, "runs": len(ran), "as declared": killed, "clauses": ", ".join(mutant.violates)}
        )
    table = pd.DataFrame(rows)
    share = table["as declared"] / table["runs"]  # NaN for a mutant that this machine cannot run
    table.insert(3, "share", [f"{value:.1%}" if math.isfinite(value) else "not run" for value in share])
    return table


def scatter(results: Sequence[ClaimResult]) -> pd.DataFrame:
    """Smallest, mean and largest of every number that the healthy runs measured."""
    numbers = [
        {
            name: float(value)
            for name, value in result.subject.observation.measurements.items()
            if isinstance(value, (int, float)) and not isinstance(value, bool)
        }
        for result in results
    ]
    return pd.DataFrame(numbers).agg(["min", "mean", "max"]).T


if __name__ == "__main__":
    sys.exit(main())
