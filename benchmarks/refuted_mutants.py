"""What it saves that a mutant's trial ends once it is refuted, over all mutants of some claims.

Each claim runs with all its mutants in two arms, in turns: `whole`, in which every trial runs to its end, and
`refuted`, in which a mutant's trial ends as soon as it has violated the clauses that the contract names. A row has the
processor seconds of all processes, the sum of the seconds of the mutants' trials, and their ratios.

    python -m benchmarks.refuted_mutants F-DISTILL-SMOKE-001 F-BLACKWELL-CUBLAS-001 [--repeat 1] [--each]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd

ARMS = {
    "whole": "import harness.execution.local_executor as one; one.refutes = lambda *_: False\n",
    "refuted": "",
}
"""What each arm does before the run."""
RUN = "from harness.cli import main; main()"


def measured(claim: str, arm: str, jobs: int) -> tuple[float, dict[str, Any]]:
    """Run a claim with all its mutants. Returns the processor seconds of all its processes, and its record."""
    with tempfile.TemporaryDirectory() as evidence:
        arguments = ["run", claim, "--profile", "reduced", "--all-mutants", "-j", str(jobs)]
        command = [sys.executable, "-c", ARMS[arm] + RUN, *arguments, "--evidence", evidence, "--json", "-"]
        root = Path(__file__).parent.parent
        with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            (record,) = json.loads(process.stdout.read())["records"]
            _, _, used = os.wait4(process.pid, 0)
            process.returncode = 0
    return used.ru_utime + used.ru_stime, record


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("claims", nargs="+")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--each", action="store_true", help="also a row for each mutant")
    arguments = parser.parse_args()
    rows, each = [], []
    for claim in arguments.claims:
        for _ in range(arguments.repeat):
            row: dict[str, object] = {"claim": claim}
            fates = {}
            for arm in ARMS:
                processor, record = measured(claim, arm, arguments.jobs)
                mutants = {mutant["id"]: mutant for mutant in record["mutants"] if mutant["seconds"]}
                row |= {f"processor {arm} (s)": processor, "mutants": len(mutants)}
                row[f"trials {arm} (s)"] = sum(mutant["seconds"] for mutant in mutants.values())
                fates[arm] = {name: mutant["fate"] for name, mutant in mutants.items()}
                each += [
                    {"claim": claim, "mutant": name, "arm": arm, "s": mutant["seconds"]}
                    for name, mutant in mutants.items()
                ]
            lived = [name for name, fate in fates["whole"].items() if fate == "killed" != fates["refuted"][name]]
            if lived:  # the other way round, a whole trial can reach its limit where the machine is busy
                raise SystemExit(f"{claim}: only the whole trial kills {', '.join(lived)}")
            rows.append(row)
    table = pd.DataFrame(rows).groupby("claim", sort=False).median(numeric_only=True)
    table.loc["all"] = table.sum()
    for what in ("processor", "trials"):
        table[f"{what} ratio"] = table[f"{what} refuted (s)"] / table[f"{what} whole (s)"]
    print(table.round(2).to_string())
    if arguments.each:
        print(pd.DataFrame(each).pivot_table(index=["claim", "mutant"], columns="arm", values="s").round(2).to_string())


if __name__ == "__main__":
    main()
