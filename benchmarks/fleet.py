"""Time and memory of `harness status` and `harness merge` over the evidence of many claims, nights and hosts.

The records of this repository's evidence are copied under other ids and runs, one bundle a claim, night and host, into
a project that has a contract for each claim. Merging verifies every bundle, so it gets this repository's own bundles.

    python -m benchmarks.fleet [--claims 1000] [--nights 2] [--hosts 2]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.indexing import populate
from harness.contract.project import Project
from harness.evidence.verification import find_bundles


def measured(root: Path, *arguments: str) -> tuple[float, float]:
    """Wall time of a command in seconds, and the largest resident memory of its process in MiB."""
    environment = {**os.environ, "HARNESS_CACHE_DIR": str(root / "cache")}
    started = time.perf_counter()
    with (root / "output").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "harness", *arguments], cwd=root, env=environment, stdout=output, stderr=output
        )
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit((root / "output").read_text()[-2000:])
    return time.perf_counter() - started, usage.ru_maxrss / 1024


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--claims", type=int, default=1000)
    parser.add_argument("--nights", type=int, default=2)
    parser.add_argument("--hosts", type=int, default=2)
    given = parser.parse_args(arguments)
    own = Project.find(Path(__file__).parent).evidence
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        bundles = given.claims * given.nights * given.hosts
        populate(root, bundles, given.claims)
        sealed = len(find_bundles([own]))
        print(f"{given.claims:,} claims, {given.nights} nights, {given.hosts} hosts: {bundles:,} bundles")
        for what, count, command in (
            ("status, the first time", bundles, ("status",)),
            ("status, then", bundles, ("status",)),
            ("merge of other bundles", sealed, ("merge", str(own), "--into", "merged")),
            ("the same merge again", sealed, ("merge", str(own), "--into", "merged")),
        ):
            seconds, memory = measured(root, *command)
            each = 1000 * seconds / count
            print(f"{what:24} {seconds:8.2f} s  {memory:6.0f} MiB  {count:7,} bundles  {each:7.2f} ms each", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
