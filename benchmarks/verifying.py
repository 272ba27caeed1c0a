"""Speed of verification: hashing compared with `sha256sum`, and a thousand bundles judged again.

    python -m benchmarks.verifying [--bundles 1000] [--mebibytes 96] [--repeats 5]

The floors: hashing reaches 0.8 of the speed of `sha256sum` on the same files, in turns; and a thousand bundles, copies
of those in evidence/ with their mutants, are judged again in 30 s on two processors. Files are read from the page
cache. On a busy machine, rely on the processor time instead of the wall time.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path
from statistics import median

from harness.contract.project import Project
from harness.evidence import untrusted
from harness.evidence.bundle_layout import MOST_ENTRIES
from harness.evidence.verification import find_bundles, verify_all

RATIO = 0.8
SECONDS_PER_THOUSAND = 30.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bundles", type=int, default=1000)
    parser.add_argument("--mebibytes", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        hashing = hashing_ratio(Path(name), options.mebibytes, options.repeats)
    with tempfile.TemporaryDirectory() as name:
        judging = judging_ratio(Path(name), options.bundles)
    return 0 if hashing >= RATIO and judging >= 1.0 else 1


def hashing_ratio(folder: Path, mebibytes: int, repeats: int) -> float:
    """Our throughput relative to sha256sum, the median of turns, for one large file and for many small ones."""
    ratios = []
    for count in (1, MOST_ENTRIES):
        place = folder / str(count)
        place.mkdir()
        size = (mebibytes << 20) // count
        for number in range(count):
            (place / f"{number:04}.bin").write_bytes(os.urandom(size))
        names = sorted(path.name for path in place.iterdir())

        def ours(place: Path = place) -> None:
            for name in untrusted.scan(place).files:
                untrusted.digest(place, name)

        def theirs(place: Path = place, names: list[str] = names) -> None:
            subprocess.run(["sha256sum", "--", *names], cwd=place, stdout=subprocess.DEVNULL, check=True)

        ours()
        theirs()
        turns = [(timed(ours), timed(theirs)) for _ in range(repeats)]
        ratio = median(other / own for own, other in turns)
        own, other = (median(times) for times in zip(*turns, strict=True))
        print(
            f"hashing {count} file{'s' * (count > 1)} of {size >> 10} KiB: {mebibytes / own:.0f} MiB/s, "
            f"sha256sum {mebibytes / other:.0f} MiB/s: {ratio:.2f} of it (floor {RATIO})"
        )
        ratios.append(ratio)
    return min(ratios)


def judging_ratio(folder: Path, count: int) -> float:
    """The rate of judging bundles again, as a multiple of the floor."""
    root = Project.find(Path(__file__).parent).evidence
    originals = find_bundles([root])
    for number, original in enumerate(islice(cycle(originals), count)):
        shutil.copytree(original, folder / str(number) / Path(*original.parts[-3:]))
    bundles = find_bundles([folder])
    started, before = time.perf_counter(), processor_seconds()
    verifications = list(verify_all(bundles))
    seconds, worked = time.perf_counter() - started, processor_seconds() - before
    unsound = [verification for verification in verifications if not verification.sound]
    if unsound:
        sys.exit(f"{len(unsound)} of {len(verifications)} are unsound: {unsound[0].findings[0]}")
    ratio = SECONDS_PER_THOUSAND * count / 1000 / seconds
    mutants = sum(len(verification.mutants or {}) for verification in verifications)
    processors = len(os.sched_getaffinity(0))
    print(
        f"judging {count} bundles with {mutants} mutants again: {seconds:.1f} s on {processors} processors, "
        f"{count / seconds:.0f} a second: {ratio:.1f} times the floor (1000 in {SECONDS_PER_THOUSAND:g} s); "
        f"{1000 * worked / count:.0f} ms of processor time each"
    )
    return ratio


def processor_seconds() -> float:
    """Processor time of this process and of its finished children, in seconds."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def timed(work: Callable[[], None]) -> float:
    """Seconds of wall-clock time."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main())
