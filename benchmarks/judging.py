"""Judgments per second on one core, compared with a plain jsonschema validation of the same measurements.

    python -m benchmarks.judging [--observations 10000]

A judgment decides every clause, and evaluates the CEL rules and the built-in clauses. jsonschema's `iter_errors` only
looks for violations of the schema. The floor is 10,000 judgments per second.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from harness.base.device import Device
from harness.base.vocabulary import Outcome
from harness.contract import Contract, parse
from harness.contract.project import Project
from harness.judging.judge import judge, requested
from harness.judging.observation import Observation, Residency
from harness.tools.search.witnesses import Search, without_traces

FLOOR = 10_000
"""Observations per second."""

_PARAMETERS = {"steps": 50, "dtype": "float32"}
_LOSS = {"type": "number", "minimum": 0, "x-unit": "nat"}
_DOCUMENT: dict[str, Any] = {
    "id": "F-BENCH-TRAIN-001",
    "issue": "BENCH-1",
    "spec": "SPEC-BENCH-001",
    "title": "A training claim of usual size",
    "claim": "Fifty steps finish, the student learns, and the export holds every tensor.",
    "sources": [{"uri": "https://example.org"}],
    "falsifier": "falsifiers.bench:falsify",
    "subject": "falsifiers.bench:Trainer",
    "profiles": {"reduced": {"requires": {"device": "any"}, "parameters": _PARAMETERS, "limits": {"seconds": 60}}},
    "observation": {
        "type": "object",
        "properties": {
            "steps_executed": {"type": "integer", "const": 50, "x-source": "the claim"},
            "initial_loss": {**_LOSS, "examples": [6.0760]},
            "final_loss": {**_LOSS, "examples": [4.1]},
            "reported_losses": {"type": "array", "minItems": 50, "items": _LOSS, "x-source": "the claim"},
            "reported_loss": {**_LOSS, "examples": [4.2]},
            "tensors": {"type": "integer", "minimum": 1, "x-source": "a model has weights"},
            "finite": {"const": True},
        },
    },
    "rules": [
        {"id": "loss-falls", "rule": "self.final_loss < self.initial_loss", "message": "the student did not learn"},
        {
            "id": "report-agrees",
            "rule": "self.reported_loss - self.final_loss <= 0.5 && self.final_loss - self.reported_loss <= 0.5",
            "message": "the reported loss is not the measured one",
            "source": "the scatter of one batch",
        },
        {
            "id": "every-step-reported",
            "rule": "double(size(self.reported_losses)) == self.steps_executed",
            "message": "a",
        },
        {"id": "steps-as-asked", "rule": "self.steps_executed == parameters.steps", "message": "other steps were run"},
    ],
    "mutants": [{"id": "m", "subject": "falsifiers.bench:Mutant", "violates": ["loss-falls"], "defect": "none"}],
}


def observations(contract: Contract, count: int) -> list[Observation]:
    """Healthy observations of a contract, with slightly different numbers if the contract allows them."""
    profile = next(reversed(contract.profiles.values()))
    device = Device("cuda" if profile.requires["device"] == "cuda" else "cpu", "a device")
    request = requested(contract, profile.name, profile.parameters, device.type)
    healthy = Observation(
        subject=contract.subject,
        profile=profile.name,
        parameters=profile.parameters,
        device=device,
        measurements=Search(contract, profile).satisfying(),
        resolved=request,
        residency=Residency(allocator_peak_bytes=1, driver_seen=True),
    )
    scatter = random.Random(0)
    scattered = [replace(healthy, measurements=_scattered(healthy.measurements, scatter)) for _ in range(count)]
    allowed = judge(contract, scattered[0]).outcome is Outcome.PASS
    return scattered if allowed else [replace(healthy) for _ in range(count)]


def _scattered(measurements: Mapping[str, Any], scatter: random.Random) -> dict[str, Any]:
    return {
        name: [item + 1e-6 * scatter.random() if isinstance(item, float) else item for item in value]
        if isinstance(value, list)
        else value
        for name, value in measurements.items()
    }


def per_second(work: Callable[[Any], object], items: Sequence[Any]) -> float:
    """Items processed per second, the best of three passes."""
    best = 0.0
    for _ in range(3):
        started = time.process_time()
        for item in items:
            work(item)
        best = max(best, len(items) / (time.process_time() - started))
    return best


def contracts() -> list[Contract]:
    """A synthetic contract of usual size, and the contracts of this project."""
    project = Project.find(Path(__file__).parent)
    return [parse(_DOCUMENT, Path("synthetic"), b""), *project.load_all()[0]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; returns 1 if the floor is not reached."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--observations", type=int, default=10_000, help="how many of each contract to judge a pass")
    count = parser.parse_args(arguments).observations
    print(f"{'':28}{'clauses':>8}{'rules':>6}{'judged/s':>10}{'jsonschema/s':>14}{'ratio':>7}")
    slowest = float("inf")
    for contract in contracts():
        with without_traces():
            judged = observations(contract, count)
        judgment = judge(contract, judged[0])
        if judgment.outcome is not Outcome.PASS:
            raise SystemExit(f"{contract.id}: the benchmark's own observation does not pass: {judgment.reason}")
        validator = Draft202012Validator({**contract.observation, "required": sorted(contract.measurements)})
        ours = per_second(lambda observation, contract=contract: judge(contract, observation).outcome, judged)
        bare = per_second(
            lambda observation, validator=validator: list(validator.iter_errors(observation.measurements)), judged
        )
        slowest = min(slowest, ours)
        sizes = f"{len(judgment.clauses):8}{len(contract.rules):6}"
        print(f"{contract.id:28}{sizes}{ours:10,.0f}{bare:14,.0f}{ours / bare:7.2f}")
    print(f"the slowest reaches {slowest:,.0f} a second; the floor is {FLOOR:,}")
    return 0 if slowest >= FLOOR else 1


if __name__ == "__main__":
    sys.exit(main())
