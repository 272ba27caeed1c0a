"""How often a falsifier is wrong, and by what margin it is right: healthy runs that fail, and mutants that live.

Every seed is one run of the claim through the engine, as `harness run` does it: the subject and all mutants, without a
bundle. Printed are

- how many healthy runs passed, and how many runs killed each mutant on its declared clauses;
- for every clause with a threshold, how far beyond it the subject and each mutant were: a ratio above 1 violates the
  clause (see harness/contract/ratio.py). A healthy subject's largest should be well below 1, a mutant's smallest well
  above;
- what the contract should record of that: `"ratios"` of each mutant, ready to be copied;
- how far the healthy measurements scatter.

    python benchmarks/false_alarms.py [--runs 30] [--first-seed 0] [--profile full] [-P KEY=VALUE] [ID…]

Without an ID it runs every claim of the project. The exit status is 0 where every healthy run passed and every mutant
that could run died in every run.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from harness import strictjson
from harness.contract import Contract
from harness.contract.clauses import Clause
from harness.contract.ratio import has_ratio, ratio
from harness.engine import Engine
from harness.events import Event
from harness.executors import TrialResult
from harness.executors.local import LocalExecutor
from harness.judge import judge
from harness.machine.host import probe
from harness.machine.paths import cache_folder
from harness.plan import Options
from harness.project import Project
from harness.result import ClaimResult
from harness.verdict import Fate, Outcome

HEALTHY = "(the subject)"


def main() -> int:
    """Run, print the tables, and say by the exit status whether anything went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ids", nargs="*", metavar="ID")
    parser.add_argument("--runs", type=int, default=30, help="seeds a claim")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--profile", choices=["reduced", "full"], default="reduced")
    parser.add_argument("--device", default="auto", metavar="auto|cpu|cuda:N")
    parser.add_argument("--no-mutants", action="store_true", help="only the subject: for many seeds in little time")
    parser.add_argument("-P", dest="parameters", action="append", default=[], metavar="KEY=VALUE", help="VALUE is JSON")
    arguments = parser.parse_args()
    project = Project.find()
    overrides = {
        name: strictjson.loads(value) for name, _, value in (text.partition("=") for text in arguments.parameters)
    }
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.runs)
    sound = True
    for name in arguments.ids or [path.stem for path in project.files()]:
        contract = project.contract(name)
        options = [
            Options(
                profile=arguments.profile,
                device=arguments.device,
                parameters=overrides,
                mutants=not arguments.no_mutants,
                seed=seed,
            )
            for seed in seeds
        ]
        results = list(runs(project, contract, options))
        table = rates(contract, results)
        sound &= bool((table["as declared"] == table["runs"]).all())
        print(f"\n{name}: {len(results)} runs\n\n{table.to_string(index=False)}")
        margins = ratios(contract, results)
        if not margins.empty:
            print(f"\n{margins.to_string(index=False, float_format='{:.3g}'.format)}")
            print(f"\n{calibration(contract, margins, arguments.profile)}")
        numbers = scatter(results)
        if not numbers.empty:
            print(f"\n{numbers.to_string(float_format='{:.6g}'.format)}")
    return 0 if sound else 1


def runs(project: Project, contract: Contract, options: Sequence[Options]) -> Iterator[ClaimResult]:
    """Run the claim once for each of the options and yield what a bundle would have been made from."""
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
    for one in options:
        finished = engine.run([contract], one)
        if finished.interrupted:
            raise KeyboardInterrupt
        result = kept.pop()
        print(f"{contract.id} seed {one.seed}: {result.record.verdict.value} {result.record.reason}", file=sys.stderr)
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


def ratios(contract: Contract, results: Sequence[ClaimResult]) -> pd.DataFrame:
    """Smallest and largest ratio to its threshold of every clause that has one.

    Of the subject every clause is listed, of a mutant those that it must violate.
    """
    clauses: dict[str, Clause] = {clause.id: clause for clause in (*contract.clauses, *contract.rules)}
    trials: list[tuple[str, Sequence[str], list[TrialResult]]] = [
        (HEALTHY, list(clauses), [result.subject for result in results])
    ]
    for mutant in contract.mutants:
        seen = [result.mutants[mutant.id] for result in results if mutant.id in result.mutants]
        trials.append((mutant.id, [name for name in mutant.violates if name in clauses], seen))
    rows = []
    for trial, names, seen in trials:
        for name in names:
            found = [one for one in (_ratio(clauses[name], trial) for trial in seen) if one is not None]
            if has_ratio(clauses[name]) and found:
                rows.append({"trial": trial, "clause": name, "smallest": min(found), "largest": max(found)})
    return pd.DataFrame(rows)


def _ratio(clause: Clause, trial: TrialResult) -> float | None:
    observation = trial.observation
    return ratio(clause, observation.measurements, observation.parameters, observation.device)


def calibration(contract: Contract, margins: pd.DataFrame, profile: str) -> str:
    """The `ratios` of every mutant for its contract, three digits each; what is infinite is left out."""
    lines = []
    for mutant in contract.mutants:
        mine = margins[(margins["trial"] == mutant.id) & margins["smallest"].map(math.isfinite)]
        smallest = {row.clause: float(f"{row.smallest:.3g}") for row in mine.itertuples() if row.smallest > 1.0}
        if smallest:
            lines.append(f'{mutant.id}: "ratios": {strictjson.dumps({profile: smallest})}')
    return "\n".join(lines)


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
    table = pd.DataFrame(numbers)
    return table if table.empty else table.agg(["min", "mean", "max"]).T


if __name__ == "__main__":
    sys.exit(main())
