"""Time of `harness status` over many bundles: the first call, which reads every record, and later ones.

The bundles are the records of this repository's evidence, copied under other ids and runs into a temporary project
that has a contract for each of these claims. After the first indexing an answer may take 1 s over 10,000 bundles.

    python -m benchmarks.indexing [--bundles 10000] [--claims 50]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from harness.contract.claim_folder import claim_of
from harness.contract.project import Project
from harness.evidence import manifest
from harness.evidence.bundle_layout import MANIFEST, RECORD

LIMIT = 1.0
"""Seconds."""


def populate(root: Path, bundles: int, claims: int, hosts: int = 1) -> None:
    """A project with so many claims, and so many bundles of them, by turns; on hosts of eight kinds if on several."""
    ours = Project.find(Path(__file__).parent)
    contracts = {claim_of(path): path for path in ours.known()}
    read = [json.loads(path.read_text()) for path in sorted(ours.evidence.glob("*/*/*/record.json"))]
    records = [record for record in read if record["id"] in contracts]  # some bundles are of other projects' claims
    (root / "pyproject.toml").write_text("[tool.harness]\n")
    shutil.copytree(ours.root / "falsifiers", root / "falsifiers", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "contracts").mkdir()
    for number in range(claims):
        identifier = f"F-BENCH-INDEX-{number:03}"
        record = records[number % len(records)]
        contract = json.loads(contracts[record["id"]].read_text())
        contract.pop("calibration", None)  # its file lies beside the other contract
        place = root / "contracts" / identifier / "contract.json"
        place.parent.mkdir(exist_ok=True)
        place.write_text(json.dumps({**contract, "id": identifier}))
    for number in range(bundles):
        identifier = f"F-BENCH-INDEX-{number % claims:03}"
        day, second = divmod(number, 86_400)
        started = f"2026-11-{1 + day:02}T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}+00:00"
        record = records[number % claims % len(records)]
        folder = root / "evidence" / record["issue"] / identifier / f"run-{number:06}"
        folder.mkdir(parents=True)
        copied = {**record, "id": identifier, "run": folder.name, "started": started}
        if hosts > 1:
            host = number * 7919 % hosts
            gpu = {"name": f"NVIDIA Model {host % 8}", "compute_capability": "9.0", "uuid": f"GPU-{host}"}
            copied["device"] = {"type": "cuda", **gpu}
        text = json.dumps(copied, indent=1).encode()
        (folder / RECORD).write_bytes(text)
        (folder / MANIFEST).write_bytes(manifest.render({RECORD: hashlib.sha256(text).hexdigest()}))


def timed(root: Path, *arguments: str) -> tuple[float, str]:
    """Wall time of a command in seconds, and the last line of its output."""
    environment = {**os.environ, "HARNESS_CACHE_DIR": str(root / "cache")}
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "harness", *arguments], cwd=root, env=environment, capture_output=True, text=True
    )
    took = time.perf_counter() - started
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return took, done.stdout.splitlines()[-1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; returns 1 if the limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bundles", type=int, default=10_000)
    parser.add_argument("--claims", type=int, default=50)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        populate(root, given.bundles, given.claims)
        print(f"{given.bundles:,} bundles of {given.claims} claims")
        first, output = timed(root, "status")
        print(f"harness status, the first time  {first:8.2f} s   {output}")
        again = min(timed(root, "status")[0] for _ in range(5))
        print(f"harness status, then            {again:8.2f} s   {first / again:.0f} times as fast; at most {LIMIT} s")
        empty = min(timed(root, "--version")[0] for _ in range(5))
        print(f"harness --version               {empty:8.2f} s   Python and the command line alone")
    return 0 if again <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
