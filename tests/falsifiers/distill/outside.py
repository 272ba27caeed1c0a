"""An external trainer judged by a claim: in this process, or from the command line to the bundle."""

from __future__ import annotations

import importlib
import json
import shutil
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from falsifiers.distill.external import Command
from harness import NotMeasured, Setting
from harness.authoring.faults import SubjectFault
from harness.base.device import Device
from harness.base.vocabulary import Outcome
from harness.contract import load
from harness.execution.worker_trial import WorkerTrial
from harness.judging.judge import judge
from harness.judging.observation import Ending, EndingKind, Observation
from tests.cli.harness_command import harness
from tests.contracts import put
from tests.falsifiers.distill.trials import CONTRACTS, Heard
from tests.tools.trainer.trainers import BIGRAMS_FILE, ROOT

EXPORT = "F-DISTILL-CKPT-EXPORT-001"
MAX_STEPS = "F-DISTILL-MAXSTEPS-001"
PERIOD = "F-DISTILL-CKPT-PERIOD-001"
SMOKE = "F-DISTILL-SMOKE-001"
BIGRAMS = BIGRAMS_FILE.relative_to(ROOT).as_posix()


def run(folder: Path, *asked: str, mutants: bool = False, project: Path = ROOT) -> tuple[int, str]:
    """Exit status and output of `harness run`; bundles go to `folder/evidence`."""
    where = ["--device", "cpu", "--evidence", str(folder / "evidence")]
    done = harness(project, "run", *asked, *where, *([] if mutants else ["--no-mutants"]), home=folder, seconds=300)
    return done.returncode, done.stdout + done.stderr


@dataclass(frozen=True)
class Seen:
    """The measurements of a trial in this process, and the exception that ended it."""

    measurements: dict[str, Any]
    unseen: dict[str, str]
    """The reason of each measurement that was not made, by name."""
    resolved: dict[str, Any]
    ending: str
    """The type of the exception that ended the trial. For a fault of the subject, also the type of its cause."""
    reason: str


def outside(folder: Path, claim: str, subject: Any = Command, *, seed: int = 0, **options: Any) -> Seen:
    """Run the claim's falsifier on the small trainer or another one, in this process and in the reduced profile."""
    contract = json.loads((CONTRACTS / claim / "contract.json").read_text())
    trainer = {"trainer": str(BIGRAMS_FILE), "teacher": "", "student": ""}
    trainer |= {name: str(folder / f"{name}.pt") for name in ("teacher", "student")}
    parameters = {**contract["profiles"]["reduced"]["parameters"], **trainer, **options}
    setting = Setting(parameters, "cpu", seed, folder / "workspace", folder / "cache")
    setting.workspace.mkdir(parents=True, exist_ok=True)
    recorded = Heard()
    run = WorkerTrial(setting, setting.workspace, frozenset(contract["observation"]["properties"]), recorded)
    module, _, name = contract["falsifier"].partition(":")
    ending = reason = ""
    try:
        run.run(getattr(importlib.import_module(module), name), subject)
    except (SubjectFault, NotMeasured) as error:
        cause = f": {type(error.__cause__).__name__}" if isinstance(error, SubjectFault) else ""
        ending, reason = f"{type(error).__name__}{cause}", str(error)
    return Seen(recorded.measurements, recorded.unseen, recorded.resolved, ending, reason)


def outcomes(claim: str, seen: Seen, parameters: Mapping[str, Any]) -> dict[str, Outcome]:
    """The outcome of each clause of the claim, in the reduced profile with some parameters changed."""
    contract = load(CONTRACTS / claim / "contract.json", (ROOT,))
    given = contract.profiles["reduced"].parameters
    chosen = {**given, **{name: value for name, value in parameters.items() if name in given}}
    kind = {"": EndingKind.COMPLETED, "NotObserved": EndingKind.NOT_MEASURED, "NotMeasured": EndingKind.NOT_MEASURED}
    ending = Ending(kind.get(seen.ending, EndingKind.SUBJECT_FAULT), reason=seen.reason)
    device = Device("cpu", "a CPU")
    observation = Observation(
        "", "reduced", chosen, device, seen.measurements, seen.resolved, ending=ending, unseen=seen.unseen
    )
    return {clause.id: clause.outcome for clause in judge(contract, observation).clauses}


def failed(found: Mapping[str, Outcome]) -> set[str]:
    """The clauses that FAIL."""
    return {name for name, outcome in found.items() if outcome is Outcome.FAIL}


def small_project(folder: Path, mutants: Mapping[str, Collection[str]]) -> Path:
    """A copy of this project with only these claims, and only the named mutants, because each takes seconds."""
    copy = folder / "project"
    for package in ("falsifiers", "tests/tools/trainer"):
        shutil.copytree(ROOT / package, copy / package)
    shutil.copy(ROOT / "pyproject.toml", copy)
    (copy / "contracts" / "distill").mkdir(parents=True)
    for claim, ids in mutants.items():
        contract = json.loads((CONTRACTS / claim / "contract.json").read_text())
        contract["mutants"] = [mutant for mutant in contract["mutants"] if mutant["id"] in ids]
        contract.pop("calibration", None)  # it names every mutant
        put(copy / "contracts" / "distill" / claim / "contract.json", json.dumps(contract))
    return copy


def named(folder: Path) -> list[str]:
    """The options that name these models."""
    return [word for name in ("teacher", "student") for word in ("-P", f"{name}={folder / name}.pt")]


def bundle(folder: Path, claim: str = "*") -> Path:
    """The only bundle, or the only one of a claim."""
    (found,) = (path.parent for path in (folder / "evidence").glob(f"*/{claim}/*/record.json"))
    return found


def record(folder: Path, claim: str = "*") -> dict[str, Any]:
    """The record of the only bundle."""
    document: dict[str, Any] = json.loads((bundle(folder, claim) / "record.json").read_text())
    return document


def clauses(folder: Path, claim: str = "*") -> dict[str, str]:
    """The outcomes of the record's clauses."""
    return {clause["id"]: clause["outcome"] for clause in record(folder, claim)["clauses"]}


def verified(folder: Path) -> bool:
    """Whether `harness verify`, which judges again, finds the bundle sound."""
    return harness(ROOT, "verify", str(folder / "evidence"), home=folder).returncode == 0


def historical_run(folder: Path) -> Path:
    """A run like the one of 25 hours (PR #1856): a log of good losses, and 200 bytes of metadata as the model."""
    place = folder / "run"
    place.mkdir()
    metadata = {"temperature": "4.0", "alpha": "0.3", "epoch": "1613", "step": "50000", "final_loss": "3.5800"}
    header = {"__metadata__": {"teacher_model": "", **metadata}}
    header["__metadata__"]["teacher_model"] = "/" + "m" * (191 - len(json.dumps(header)))
    content = struct.pack("<Q", 192) + json.dumps(header).encode()
    assert len(content) == 200
    (place / "model.safetensors").write_bytes(content)
    bar = b"".join(
        b"\r\x1b[32m%3d%%\x1b[0m Step %d/50000 loss=%.4f" % (step // 500, step, 10.5294 - 6.9494 * step / 50_000)
        for step in range(50, 50_001, 50)
    )
    head = b"\x1b[1m=== APR Distill ===\x1b[0m\n[CUDA] Pre-warmed 27 forward kernels\ninitial_loss = 10.5294\n"
    (place / "launch.log").write_bytes(head + bar + b"\n  final_loss   = 3.5800\n  50000 steps, 90012.4s\n  Sav")
    return place
