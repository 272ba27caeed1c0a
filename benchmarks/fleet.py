"""Time and memory of the commands over the evidence of a fleet, and the cost of a night.

Every claim has a bundle from the first night. On each later night one per cent of the claims ran again, on the hosts in
turn. Their records are those of this repository's evidence, under other ids. The cost of a night follows from the
sources that these bundles list.

Merging verifies every new bundle, so it gets this repository's own bundles: first once each, and then the folders of
all hosts, as hard links. The cache of a first merge of these folders is written in advance, except for one night.
Every row is the best of three by processor time.

    python -m benchmarks.fleet [--claims 10000] [--nights 365] [--hosts 200]
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.indexing import populate
from harness.base.beneath import Beneath
from harness.contract.project import Project
from harness.evidence.index import Entry, read
from harness.evidence.verification import find_bundles
from harness.tools.merge.merged_before import MergedBefore, state_of_files

SHARE = 0.01
"""Of the claims that run again in a night, and of the sources that change."""


def measured(root: Path, *arguments: str) -> tuple[float, float, float]:
    """Wall and processor time of a command in seconds, and the largest resident memory of its process in MiB."""
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
    return time.perf_counter() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def best(root: Path, *arguments: str) -> tuple[float, float, float]:
    """Return the one of three measurements with the least processor time."""
    return min((measured(root, *arguments) for _ in range(3)), key=lambda result: result[1])


def hosts_folders(root: Path, evidence: Path, bundles: int, hosts: int, new: int) -> None:
    """Link sound bundles into the folders of all hosts. All except the new ones count as merged."""
    shutil.copytree(evidence, root / "sound", ignore=shutil.ignore_patterns(".*"))
    sound = find_bundles([root / "sound"])
    new = min(new, len(sound))
    names = {bundle: [path.relative_to(bundle) for path in bundle.rglob("*") if path.is_file()] for bundle in sound}
    pairs = []
    for number in range(bundles):
        bundle, is_new = sound[number % len(sound)], number >= bundles - new
        place = (
            bundle.parts[-3:]
            if is_new
            else (bundle.parts[-3], f"{bundle.parts[-2]}-{number % 10_000}", f"run-{number}")
        )
        source, target = (root / folder / "/".join(place) for folder in (f"hosts/{number * 7919 % hosts}", "united"))
        for copy in (source,) if is_new else (source, target):
            for name in names[bundle]:
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                os.link(bundle / name, copy / name)
        pairs.append((source, target, place))
    before = MergedBefore(root / "united")
    for source, target, place in pairs[: bundles - new]:
        before.add(source, state_of_files(Beneath(source)), place, state_of_files(Beneath(target)))
    before.save()


def night(evidence: Path, draws: int = 1000) -> str:
    """Return the number of stale claims after a change of SHARE of the sources, and the seconds of their runs.

    The mean over random changes. Sources in one file that many claims import make them stale together.
    """
    newest: dict[str, Entry] = {}
    for entry in sorted(read(evidence).entries, key=lambda entry: entry.started):
        newest[entry.id] = entry
    sources = sorted({name for entry in newest.values() for name in entry.sources})
    count, seconds, chance = 0, 0.0, random.Random(0)
    for _ in range(draws):
        changed = set(chance.sample(sources, max(1, round(SHARE * len(sources)))))
        stale = [entry for entry in newest.values() if not changed.isdisjoint(entry.sources)]
        count, seconds = count + len(stale), seconds + sum(entry.seconds for entry in stale)
    whole = sum(entry.seconds for entry in newest.values())
    again = f"{seconds / draws:.0f} of the {whole:.0f} s of all, {100 * seconds / draws / whole:.0f} %"
    return (
        f"{max(1, round(SHARE * len(sources)))} of {len(sources)} sources change: {count / draws:.1f} of {len(newest)} "
        f"claims are stale; they take {again}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--claims", type=int, default=10_000)
    parser.add_argument("--nights", type=int, default=365)
    parser.add_argument("--hosts", type=int, default=200)
    given = parser.parse_args(arguments)
    own = Project.find(Path(__file__).parent).evidence
    print(night(own))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        bundles = given.claims + round(given.nights * SHARE * given.claims)
        populate(root, bundles, given.claims, given.hosts)
        sealed = len(find_bundles([own]))
        print(f"{given.claims:,} claims, {given.nights} nights, {given.hosts} hosts: {bundles:,} bundles", flush=True)
        os.environ["HARNESS_CACHE_DIR"] = str(root / "cache")
        hosts_folders(root, own, bundles, given.hosts, round(SHARE * given.claims))
        merge = ("merge", *(f"hosts/{number}" for number in range(given.hosts)), "--into", "united")
        for what, count, way, command in (
            ("status, the first time", bundles, measured, ("status",)),
            ("status, then", bundles, best, ("status",)),
            ("stale claims", bundles, best, ("status", "--only", "stale")),
            ("merge, the first time", sealed, measured, ("merge", str(own), "--into", "merged")),
            ("merge of all, one night new", bundles, measured, merge),
            ("the same merge again", bundles, best, merge),
        ):
            wall, used, memory = way(root, *command)
            row = f"{what:28} {wall:8.2f} s wall {used:8.2f} s of a processor {memory:6.0f} MiB {count:7,} bundles"
            print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
