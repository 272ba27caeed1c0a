"""The cost of a suite of claims beside the work of its trials.

    python -m benchmarks.scheduling [CLAIM...] [--mutants]
    python -m benchmarks.scheduling --of RUN.json [OTHER.json]

The first form runs claims of this repository in the reduced profile, with the default number of trials at a time and
with one. It prints the wall time relative to the sum of the trials' seconds and one import of their libraries. On two
cores the target is at most 0.65.

The second form reads the results of finished runs, which wrote `--json RUN.json`. It prints the sum of their trials'
seconds, the wall time, the load of their GPUs (telemetry of the subjects' trials), and the efficiency of a run on
several GPUs relative to the first run.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.commands import clock, harness, trial_seconds

IMPORT = "import torch, transformers; from transformers import Qwen2ForCausalLM, Qwen2Config"


def suite(claims: list[str], mutants: bool) -> pd.DataFrame:
    """Claims of this repository, with the default number of trials at a time and with one."""
    root = Path(__file__).parents[1]
    rows = []
    for jobs in ([], ["-j", "1"]):
        imports = clock([sys.executable, "-c", IMPORT], root)
        options = [*(claims or ["--all"]), "--profile", "reduced", *([] if mutants else ["--no-mutants"]), *jobs]
        wall, records, _ = harness(options, root)
        trials = trial_seconds(records)
        rows.append(
            {
                "at a time": jobs[-1] if jobs else "default",
                "claims": len(records),
                "trials": len(trials),
                "sum of trials (s)": sum(trials),
                "one import (s)": imports,
                "wall (s)": wall,
                "wall / (sum + import)": wall / (sum(trials) + imports),
            }
        )
    return pd.DataFrame(rows).round(3)


def runs(paths: list[Path]) -> pd.DataFrame:
    """Return a row for each finished run. The efficiency is relative to the first, with the same claims and trials."""
    rows: list[dict[str, Any]] = []
    for path in paths:
        run = json.loads(path.read_text())
        records = run["records"]
        trials = trial_seconds(records)
        gpus = {record["device"].get("uuid") for record in records if record["trial_seconds"]} - {None}
        wall = run["seconds"]
        telemetry = [Path(record["bundle"]) / "telemetry.csv" for record in records if record["bundle"] and gpus]
        busy = [
            pd.read_csv(path) for path in telemetry if path.exists()
        ]  # the bundles may have stayed on their machine
        samples = pd.concat(busy)["gpu_utilisation_percent"] if busy else pd.Series(dtype=float)
        rows.append(
            {
                "run": path.stem,
                "claims": len(records),
                "trials": len(trials),
                "GPUs": len(gpus),
                "sum of trials (s)": sum(trials),
                "wall (s)": wall,
                "wall / sum": wall / sum(trials),
                "GPU busy (%)": samples.mean(),
            }
        )
    first = rows[0]
    for row in rows:
        same = row["trials"] == first["trials"] and row["GPUs"]
        spent = row["wall (s)"] * row["GPUs"]
        row["efficiency"] = first["wall (s)"] * first["GPUs"] / spent if same else None
    return pd.DataFrame(rows).round(3)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("claims", nargs="*", help="by default, all")
    parser.add_argument("--mutants", action="store_true", help="with the mutants, which takes many times longer")
    parser.add_argument("--of", nargs="+", type=Path, metavar="RUN.json", help="only read the results of these runs")
    arguments = parser.parse_args()
    table = runs(arguments.of) if arguments.of else suite(arguments.claims, arguments.mutants)
    print(table.to_string(index=False))
    print(f"load of this machine: {os.getloadavg()[0] / (os.cpu_count() or 1):.1f} for each core")


if __name__ == "__main__":
    main()
