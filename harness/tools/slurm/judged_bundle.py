"""The result of a claim that a job ran: read from the bundle that the job sealed, and judged again.

    found = judged_bundle(evidence, contract, ended.run, name)
    print(found.finished.record.verdict)

What a job prints, and what stands in a file of events, says only where to look. A verdict comes from nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from harness.base.beneath import Beneath
from harness.contract import Contract
from harness.contract.ratio import ratios
from harness.evidence import bundle_checks
from harness.evidence import bundle_layout as layout
from harness.evidence.bundle import Bundle
from harness.judging.judge import judge
from harness.judging.verdict import fate_of
from harness.machine.limited_process import Limits, Stopped, decoded, isolated
from harness.running.events import SUBJECT, ClaimFinished, TrialFinished

__all__ = ["NAME", "BundleRefused", "JudgedBundle", "judged_bundle"]

NAME = "HARNESS_SLURM_RUN"
"""The variable that names the run to its jobs. A bundle records it, so a bundle of another run is told apart."""
_READ = (layout.RECORD, layout.CONTRACT, layout.OBSERVATION, layout.MUTANTS, layout.ENVIRONMENT)
_LIMITS = Limits(answer_bytes=64 << 20)


class BundleRefused(ValueError):
    """A bundle is missing, unsound, or of another claim or run. The text says which."""


@dataclass(frozen=True)
class JudgedBundle:
    """What a sound bundle says."""

    trials: tuple[TrialFinished, ...]
    """The subject's, then those of the mutants that ran."""
    finished: ClaimFinished


def judged_bundle(evidence: Path, contract: Contract, run: str, name: str) -> JudgedBundle:
    """Open and check the bundle of one run of a claim, and judge it again.

    Args:
        evidence: the folder of the bundles. No link below it is followed.
        run: the name of the bundle's folder.
        name: the value of the variable `NAME` that the job got.

    Raises:
        FileNotFoundError: there is no such folder.
        BundleRefused: it is not a sound bundle of this claim and this run.
    """
    if "/" in run:
        raise BundleRefused(f"{run[:200]!r} is not the name of a bundle")
    try:
        place = Beneath(evidence, f"{contract.issue}/{contract.id}/{run}")
        bundle_checks.prepare()
        with place.folder() as descriptor:  # what is put in its place meanwhile is not read
            answer = isolated(partial(_checked, descriptor, contract, run, name), _LIMITS)
    except FileNotFoundError:
        raise
    except Stopped as error:
        raise BundleRefused(f"checking the bundle {run} {error}") from error
    except (OSError, ValueError) as error:
        raise BundleRefused(f"the bundle {run[:200]!r} cannot be opened: {error}") from error
    answer_document = decoded(answer)
    if "refused" in answer_document:
        raise BundleRefused(f"the bundle {place} {answer_document['refused']}")
    finished = ClaimFinished.from_json(answer_document["finished"])
    return JudgedBundle(
        tuple(map(TrialFinished.from_json, answer_document["trials"])), replace(finished, bundle=place.path)
    )


def _checked(descriptor: int, contract: Contract, run: str, name: str) -> bytes:
    """Check a bundle in its process. Return what it says, or why it is refused, as JSON."""
    folder = Path(f"/proc/self/fd/{descriptor}")
    verification, _ = bundle_checks.check(folder, {})
    bundle = Bundle(folder)
    if verification.findings:
        problems = sorted({f"{finding.code} {finding.file}".strip() for finding in verification.findings})
        return _refused(f"is unsound: {', '.join(problems[:5])}; harness verify says more")
    if bundle.digest(layout.MANIFEST) != verification.manifest or any(
        bundle.digest(file) != bundle.manifest[file] for file in _READ
    ):
        return _refused("changed while it was read")
    record = bundle.record
    if (record.issue, record.id, record.run) != (contract.issue, contract.id, run):
        return _refused(f"is of {record.issue}/{record.id}/{record.run}")
    if bundle.contract.digest != contract.digest:
        return _refused("is of another version of the contract")
    if (other := bundle.environment["variables"].get(NAME)) != name:
        return _refused(f"is of the run {str(other)[:80]}, not of {name}")
    seen = bundle.observation
    close = ratios(bundle.contract, seen.measurements, seen.parameters, seen.device)
    document = {
        "finished": ClaimFinished(record, None, close).to_json(),
        "trials": [trial.to_json() for trial in _trials(bundle)],
    }
    return json.dumps(document).encode("ascii")


def _trials(bundle: Bundle) -> Iterator[TrialFinished]:
    record, contract, seen = bundle.record, bundle.contract, bundle.observation
    traceback = seen.ending.traceback or ""
    yield TrialFinished(record.id, SUBJECT, judge(contract, seen), None, record.trial_seconds, traceback)
    seconds = {mutant.id: mutant.seconds for mutant in record.mutants}
    for mutant in contract.mutants:
        trial = bundle.mutants.get(mutant.id)
        if trial is not None:
            judgment = judge(contract, trial.observation)
            outcome = fate_of(mutant, judgment)
            yield TrialFinished(record.id, mutant.id, judgment, outcome, seconds[mutant.id] or 0.0)


def _refused(text: str) -> bytes:
    return json.dumps({"refused": text}).encode("ascii")
