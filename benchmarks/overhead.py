"""Overhead of the harness over the work that it watches, as ratios and differences.

Four measurements, with the arms in turns and repeated:

1. `harness list`: wall time, compared with a bare Python start and with ReFrame's `-l`, if ReFrame is installed.
2. A run of a trivial half-second falsifier with everything on (mutant, telemetry, bundle, JUnit), compared with the
   same script alone, under pytest, and under ReFrame, if they are installed.
3. A call of a subject in its own process (`--isolate`), compared with one in the trial's process.
4. A run of one minute (`--long`), compared with the same script alone.

    python -m benchmarks.overhead [--repeat 7] [--long]
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

import pandas as pd

from benchmarks.adding_project import project
from benchmarks.commands import clock


def compare(arms: dict[str, Callable[[], float]], repeat: int, base: str) -> pd.DataFrame:
    """Run every arm once per round, so that a slow moment affects all. The first round does not count.

    The table has wall times, and the median of the processor time of all processes, which a busy machine changes less.
    """
    rows: list[dict[str, object]] = []
    for index in range(repeat + 1):
        for name, arm in arms.items():
            before, seconds, after = getrusage(RUSAGE_CHILDREN), arm(), getrusage(RUSAGE_CHILDREN)
            used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            if index:
                rows.append({"arm": name, "seconds": seconds, "processor": used})
    groups = pd.DataFrame(rows).groupby("arm", sort=False)
    medians = groups["seconds"].agg(["median", "min", "max"])
    medians["processor (s)"] = groups["processor"].median()
    medians["over bare (s)"] = medians["median"] - medians.loc[base, "median"]
    medians["ratio"] = medians["median"] / medians.loc[base, "median"]
    return medians.round(3)


def calls(root: Path, command: list[str], repeat: int) -> pd.DataFrame:
    """Return the additional seconds of a call with `--isolate`, by the bytes that it carries there and back."""
    rows: list[dict[str, object]] = []
    for size, count in ((0, 20_000), (1 << 20, 1_000), (64 << 20, 20)):
        took: dict[str, list[float]] = {"shared": [], "isolated": []}
        words = [*command, "--no-mutants", "--json", "-", *("-P", f"bytes={size}", "-P", f"calls={count}")]
        for _ in range(repeat):
            for arm, option in (("shared", []), ("isolated", ["--isolate"])):
                done = subprocess.run([*words, *option], cwd=root, capture_output=True, text=True, check=True)
                took[arm].append(json.loads(done.stdout)["records"][0]["trial_seconds"])
        shared, isolated = (statistics.median(seconds) / count for seconds in took.values())
        more = isolated - shared
        rows.append(
            {"bytes": size, "shared (us)": shared * 1e6, "isolated (us)": isolated * 1e6, "more (us)": more * 1e6}
        )
    return pd.DataFrame(rows).round(1)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--long", action="store_true", help="also the run of a minute (takes several)")
    arguments = parser.parse_args()
    python = sys.executable
    harness = [python, "-m", "harness"]
    reframe = shutil.which("reframe", path=str(Path(python).parent)) or shutil.which("reframe")
    with tempfile.TemporaryDirectory() as name:
        root, minute = Path(name) / "half", Path(name) / "minute"
        project(root, 0.5)
        project(minute, 60.0)
        lists: dict[str, Callable[[], float]] = {
            "bare python": lambda: clock([python, "-c", "pass"], root),
            "harness list": lambda: clock([*harness, "list"], root),
        }
        runs: dict[str, Callable[[], float]] = {
            "bare script": lambda: clock([python, "script.py"], root),
            "harness run": lambda: clock([*harness, "run", "F-BENCH-ADD-001", "--junit", "junit.xml"], root),
            "harness run --isolate": lambda: clock([*harness, "run", "F-BENCH-ADD-001", "--isolate"], root),
            "harness run --no-mutants": lambda: clock([*harness, "run", "F-BENCH-ADD-001", "--no-mutants"], root),
            "pytest": lambda: clock([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_script.py"], root),
        }
        if reframe:
            lists["reframe -l"] = lambda: clock([reframe, "-c", "reframe_script.py", "-l"], root)
            runs["reframe -r"] = lambda: clock([reframe, "-c", "reframe_script.py", "-r"], root)
        print("Listing\n" + compare(lists, arguments.repeat, "bare python").to_string() + "\n")
        print("A falsifier of half a second\n" + compare(runs, arguments.repeat, "bare script").to_string() + "\n")
        project(quick := Path(name) / "quick", 0.0)
        table = calls(quick, [*harness, "run", "F-BENCH-ADD-001"], min(3, arguments.repeat))
        print("A call of a subject\n" + table.to_string() + "\n")
        if arguments.long:
            arms: dict[str, Callable[[], float]] = {
                "bare script": lambda: clock([python, "script.py"], minute),
                "harness run": lambda: clock([*harness, "run", "F-BENCH-ADD-001"], minute),
            }
            print("A falsifier of a minute\n" + compare(arms, 1, "bare script").to_string())
        spread = statistics.pstdev([clock([python, "script.py"], root) for _ in range(3)])
        print(f"noise of the bare script: {spread:.3f} s standard deviation; ReFrame: {reframe or 'not installed'}")


if __name__ == "__main__":
    main()
