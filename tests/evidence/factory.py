"""Results of claims as the engine makes them, from the tiny contract of tests/contracts.py. Nothing runs."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.base.beneath import Beneath
from harness.base.device import Device
from harness.contract import Contract, parse
from harness.contract.reasons import Reason, ReasonCode
from harness.evidence import manifest
from harness.evidence.bundle_layout import MANIFEST
from harness.evidence.bundle_layout import MUTANTS as MUTANT_TRIALS
from harness.evidence.findings import Code, Verification
from harness.evidence.seal import ClaimResult, Sealer
from harness.evidence.trial_files import series_of
from harness.execution.executor import TrialResult
from harness.execution.logs import Log, Steps
from harness.judging.judge import judge, requested
from harness.judging.observation import Observation
from harness.judging.record import MutantRecord, Record
from harness.judging.verdict import claim_verdict, fate_of, interrupted, not_run
from harness.machine.telemetry import COLUMNS, DriverResidency, Telemetry
from tests.contracts import document, healthy, observe

__all__ = [
    "DEFECTIVE",
    "MUTANTS",
    "claim_result",
    "contract_in",
    "copy_of",
    "files_of",
    "found",
    "mutant_lines",
    "reseal",
    "rewrite",
    "sealed",
    "sealer",
    "set_at",
    "tamper",
    "trial",
]

MUTANTS: list[dict[str, Any]] = [
    {
        "id": "forgets-one",
        "subject": "falsifiers.demo.sorting:Forgetful",
        "violates": ["nothing-lost"],
        "defect": "drops the first item",
    },
    {
        "id": "stops-early",
        "subject": "falsifiers.demo.sorting:Sorter",
        "violates": ["given.const"],
        "defect": "makes two steps",
        "parameters": {"steps": 2},
    },
    {
        "id": "silent-fallback",
        "subject": "falsifiers.demo.sorting:Fallback",
        "violates": ["resolved.device"],
        "defect": "runs on the CPU | although CUDA was asked for",
        "requires": {"device": "cuda"},
    },
]
DEFECTIVE: dict[str, dict[str, Any]] = {"forgets-one": {"returned": 2}, "stops-early": {"given": 2, "returned": 2}}
"""The measurements of a mutant's trial that differ from the subject's."""
_FROM_CONTRACT = ("id", "issue", "spec", "title", "claim", "falsifier", "subject", "target")
ENVIRONMENT = {
    "host": {"hostname": "box", "machine": "x86_64", "kernel": "Linux 6.1", "cpu_count": 2, "gpus": [], "driver": None},
    "software": {"python": {"version": "3.11.7"}, "distributions": {"click": "8.1.7"}},
    "variables": {"PATH": "/usr/bin"},
}


def contract_in(folder: Path, **changes: Any) -> Contract:
    """A contract with the mutants above, in a file of its own; top-level keys replaced."""
    content = json.dumps(document(**{"mutants": MUTANTS, **changes}), indent=2).encode()
    path = folder / "F-DEMO-SORT-001" / "contract.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return parse(json.loads(content), path, content)


def trial(
    observation: Observation, artifacts: Path | None = None, *, rows: int = 3, output: str = "hello\n"
) -> TrialResult:
    """A trial that measured this, with series of so many rows."""
    steps = tuple({"step": row, "seconds": row / 10, "loss": 3.0 / (row + 1)} for row in range(rows))
    samples = tuple((row / 4, 2, 10_000 + row, *[None] * (len(COLUMNS) - 3)) for row in range(rows))
    telemetry = Telemetry(samples, {"gpu_power_watts": "no GPU was leased"}, DriverResidency(None, None, "no GPU"))
    written = output.encode(errors="replace")
    log = Log(output, len(written), hashlib.sha256(written).hexdigest())
    left = None if artifacts is None else Beneath(artifacts.parent, artifacts.name)
    done = b"     0.000  the trial of a demonstration\n"
    did = Log(done.decode(), len(done), hashlib.sha256(done).hexdigest())
    return TrialResult(observation, Steps(steps, rows), telemetry, did, log, log, left, 1.25)


def claim_result(
    folder: Path,
    *,
    measurements: Mapping[str, Any] | None = None,
    mutants: Mapping[str, Mapping[str, Any]] | None = None,
    overrides: Mapping[str, Any] | None = None,
    artifacts: Path | None = None,
    skipped: bool = False,
    obstacle: str = "needs a CUDA GPU",
    cut_short: bool = False,
    rows: int = 3,
    output: str = "hello\n",
    run: str = "2026-11-20T201503Z-cpu-3f2a9c",
    contract: Contract | None = None,
    **changes: Any,
) -> ClaimResult:
    """A claim's result, judged and settled as the engine does it.

    Args:
        folder: the folder of the contract's file.
        measurements: those of the subject; by default, healthy ones.
        mutants: for each mutant that ran, its differences from a healthy subject's measurements; by default DEFECTIVE.
        obstacle: the reason why the other mutants did not run.
        cut_short: an interruption kept the other mutants from running.
        changes: fields of the record with other values than those that follow from the rest.
    """
    contract = contract or contract_in(folder)
    parameters = {**contract.profiles["reduced"].parameters, **(overrides or {})}
    resolved = {"device": "cpu", "steps": parameters["steps"]}
    given = healthy() if measurements is None else measurements
    subject = trial(observe(given, parameters=parameters, resolved=resolved), artifacts, rows=rows, output=output)
    trials: dict[str, TrialResult] = {}
    outcomes = []
    lacking = Reason(ReasonCode.REQUIREMENT, text=obstacle)
    for mutant in contract.mutants:
        differing = (DEFECTIVE if mutants is None else mutants).get(mutant.id)
        if skipped or differing is None:
            waiting = interrupted(mutant) if cut_short else not_run(mutant, lacking)
            outcomes.append(not_run(mutant, Reason(ReasonCode.SKIPPED)) if skipped else waiting)
            continue
        theirs = {**parameters, **mutant.parameters}
        observation = observe(
            healthy(**differing),
            subject=mutant.subject,
            parameters=theirs,
            resolved={"device": "cpu", "steps": theirs["steps"]},
        )
        trials[mutant.id] = trial(observation, rows=rows, output=output)
        outcomes.append(fate_of(mutant, judge(contract, observation)))
    judgment = judge(contract, subject.observation)
    decided = claim_verdict(judgment, outcomes, skipped=skipped)
    record = Record(
        **{name: getattr(contract, name) for name in _FROM_CONTRACT},
        run=run,
        verdict=decided.verdict,
        reason=decided.reason,
        proven=decided.proven,
        profile="reduced",
        profile_reason="this machine has no GPU",
        overrides=dict(overrides or {}),
        mutants_skipped=skipped,
        device=subject.observation.device,
        requested=requested(contract, "reduced", parameters, "cpu"),
        resolved=subject.observation.resolved,
        seed=0,
        clauses=judgment.clauses,
        unjudged=judgment.unjudged,
        mutants=tuple(
            MutantRecord(
                mutant.id, mutant.subject, mutant.defect, mutant.violates, outcome.fate, outcome.reason, outcome.failed,
                trials[mutant.id].seconds if mutant.id in trials else None, outcome.values,
            )
            for mutant, outcome in zip(contract.mutants, outcomes, strict=True)
        ),
        started="2026-11-20T20:15:03+00:00",
        seconds=4.5,
        trial_seconds=1.25,
        contract_digest=contract.digest,
        sources={"falsifiers/demo/sorting.py": "a" * 64},
        harness={"version": "0.1.0", "sha256": "b" * 64},
        commit={"revision": "c" * 40, "dirty": False, "reason": None},
        logs={"log": _identity(subject.log), "stdout": _identity(subject.stdout), "stderr": _identity(subject.stderr)},
        series=series_of(subject),
        command="harness run F-DEMO-SORT-001",
    )  # fmt: skip
    record = replace(record, **changes)
    return ClaimResult(record, contract, subject, trials, _environment(record.device))


def _environment(device: Device) -> dict[str, Any]:
    """The environment of a machine with this device."""
    document = device.to_json()
    has = {"gpus": [document]} if device.is_cuda else {**document, "machine": device.name}
    return {**ENVIRONMENT, "host": {**ENVIRONMENT["host"], **has}}


def _identity(log: Log) -> dict[str, Any]:
    return {"size": log.size, "sha256": log.digest}


def sealer(folder: Path) -> Sealer:
    """A sealer below a folder."""
    return Sealer(folder / "evidence")


def sealed(folder: Path, **changes: Any) -> Path:
    """A bundle of a claim's result below a folder."""
    return sealer(folder).seal(claim_result(folder / "contracts", **changes))


def copy_of(bundle: Path, folder: Path) -> Path:
    """The bundle copied below another folder, at its place there."""
    place = folder.joinpath(*bundle.parts[-3:])
    shutil.copytree(bundle, place, symlinks=True)
    return place


def rewrite(bundle: Path, name: str, change: Any) -> None:
    """Put a JSON file of a bundle through `change` (which gets and may return the document) and seal it again.

    The document of mutants.jsonl has its lines by id.
    """
    path = bundle / name
    if name != MUTANT_TRIALS:
        content = json.loads(path.read_text())
        changed = change(content)
        path.write_text(json.dumps(content if changed is None else changed), encoding="utf-8")
    else:
        lines = mutant_lines(bundle)
        changed = change(lines)
        texts = (lines if changed is None else changed).values()
        path.write_text("".join(f"{json.dumps(line)}\n" for line in texts), encoding="utf-8")
    reseal(bundle)


def mutant_lines(bundle: Path) -> dict[str, Any]:
    """The lines of mutants.jsonl by the mutant's id."""
    documents = map(json.loads, (bundle / MUTANT_TRIALS).read_text().splitlines())
    return {document["id"]: document for document in documents}


def tamper(bundle: Path) -> None:
    """Change a byte of environment.json that has no meaning."""
    with (bundle / "environment.json").open("a") as file:
        file.write("\n")


def reseal(bundle: Path, leave_out: Sequence[str] = ()) -> None:
    """Write a manifest of the present files, as a forger would."""
    files = [path for path in bundle.rglob("*") if path.is_file() and not path.is_symlink() and path.name != MANIFEST]
    digests = {path.relative_to(bundle).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    for name in leave_out:
        digests.pop(name, None)
    (bundle / MANIFEST).write_bytes(manifest.render(digests))


def set_at(*steps: Any) -> Callable[[Any], None]:
    """A change for `rewrite`: set the last argument at the place that the other arguments name."""

    def change(document: Any) -> None:
        for step in steps[:-2]:
            document = document[step]
        document[steps[-2]] = steps[-1]

    return change


def files_of(bundle: Path) -> list[str]:
    """The names of all files of a bundle."""
    return sorted(path.relative_to(bundle).as_posix() for path in bundle.rglob("*") if path.is_file())


def found(verification: Verification) -> set[tuple[Code, str]]:
    """Code and file of each finding."""
    return {(finding.code, finding.file) for finding in verification.findings}
