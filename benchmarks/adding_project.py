"""A project with one trivial claim, for benchmarks of the harness itself."""

from __future__ import annotations

import json
import sys
from pathlib import Path

SCRIPT = "import time\ntime.sleep({seconds})\nassert sum([1, 2, 3]) == 6\n"
SUBJECTS = """
import time


class Adder:
    def __init__(self, setting):
        self.seconds = setting.parameters["seconds"]

    def total(self, items):
        time.sleep(self.seconds)
        return sum(items)

    def same(self, data):
        return data


class OffByOne(Adder):
    def total(self, items):
        return super().total(items) + 1
"""
MODULE = """
from typing import Protocol

from harness import Trial


class Adding(Protocol):
    def total(self, items: list[int]) -> int: ...

    def same(self, data: bytes) -> bytes: ...


def falsify(trial: Trial[Adding]) -> None:
    with trial.subject_fault():
        total = trial.subject.total([1, 2, 3])
        data = bytes(trial.parameters["bytes"])
        for _ in range(trial.parameters["calls"]):
            trial.subject.same(data)
    trial.resolve(device="cpu")
    trial.measure(total=total)
"""
REFRAME = """
import reframe as rfm
import reframe.utility.sanity as sn


@rfm.simple_test
class Half(rfm.RunOnlyRegressionTest):
    valid_systems = ['*']
    valid_prog_environs = ['*']
    executable = {python!r}
    executable_opts = ['{script}']

    @sanity_function
    def ended(self):
        return sn.assert_eq(self.job.exitcode, 0)
"""


def contract(seconds: float) -> dict[str, object]:
    """A claim with one mutant, whose falsifier sleeps for `seconds`."""
    return {
        "id": "F-BENCH-ADD-001",
        "issue": "BENCH-1",
        "spec": "SPEC-BENCH",
        "title": "One, two and three are six",
        "claim": "The sum of 1, 2 and 3 is 6.",
        "sources": [{"uri": "urn:benchmark"}],
        "falsifier": "bench.adding:falsify",
        "subject": "bench.subjects:Adder",
        "profiles": {
            "reduced": {
                "requires": {"device": "any"},
                "parameters": {"seconds": seconds, "calls": 0, "bytes": 0},
                "limits": {"seconds": 600},
            }
        },
        "observation": {"type": "object", "properties": {"total": {"const": 6, "x-source": "arithmetic"}}},
        "mutants": [
            {
                "id": "off-by-one",
                "subject": "bench.subjects:OffByOne",
                "violates": ["total.const"],
                "defect": "one too many",
            }
        ],
    }


def project(root: Path, seconds: float) -> None:
    """A project with that claim, and the same work as a script, a pytest file and a ReFrame test."""
    (root / "bench").mkdir(parents=True)
    (root / "contracts").mkdir()
    (root / "pyproject.toml").write_text("[tool.harness]\n")
    (root / "bench" / "__init__.py").touch()
    (root / "bench" / "adding.py").write_text(MODULE)
    (root / "bench" / "subjects.py").write_text(SUBJECTS)
    place = root / "contracts" / "F-BENCH-ADD-001"
    place.mkdir()
    (place / "contract.json").write_text(json.dumps(contract(seconds)))
    script = SCRIPT.format(seconds=seconds)
    (root / "script.py").write_text(script)
    (root / "test_script.py").write_text("def test_it():\n" + "".join(f"    {line}\n" for line in script.splitlines()))
    (root / "reframe_script.py").write_text(REFRAME.format(python=sys.executable, script=root / "script.py"))
