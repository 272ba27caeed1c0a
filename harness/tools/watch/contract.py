"""The contract of a watched job: the bounds of its checks, and the defects that prove them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from harness.base import strictjson
from harness.contract import Contract
from harness.contract.loader import parse
from harness.tools.trainer.output_events import EventKind
from harness.tools.trainer.trainer_file import Trainer
from harness.tools.watch.checkpoint_checks import CHECKPOINT_CHECKS, TeacherApart
from harness.tools.watch.checks import CHECKS
from harness.tools.watch.facts import Fact
from harness.tools.watch.given import Given
from harness.tools.watch.job_state import Check
from harness.tools.watch.planted import DEFECTS, GIVEN

__all__ = ["claim_name", "contract_of"]

_SECONDS: Final = 600
_SUBJECT: Final = "harness.tools.watch.falsifier:Job"
_CLAIM: Final = (
    "As far as the job has come, it does nothing that wastes the rest of it: it learns, makes the steps that were "
    "asked for, leaves checkpoints that hold its weights, and uses its machine."
)


def claim_name(job: str) -> str:
    """Return the id of the claim on a job of this name."""
    return f"F-WATCH-{re.sub('[^A-Z0-9]+', '-', job.upper()).strip('-')[:40].strip('-') or 'JOB'}-001"


def contract_of(job: Fact, given: Given, trainer: Trainer | None, facts: Path, root: Path) -> Contract:
    """Return the contract of a job. It omits checks whose data the job cannot provide, as far as this is known at its
    start.

    Args:
        job: its first fact.
        trainer: its file; None if the job is watched from its own process.
        facts: the file with its facts.
        root: the project's root.
    """
    name, lacks = claim_name(job["name"]), _not_shown(job, given, trainer)
    properties: dict[str, Any] = {"steps_seen": {"type": "integer", "minimum": 0, "x-unit": "steps",
                                                 "x-source": "a count", "description": "The newest step."}}  # fmt: skip
    for check in CHECKS:
        if check.name not in lacks:
            properties[check.name] = {"type": "array", "maxItems": 0, "x-source": check.source,
                                      "description": f"Refutations of: {_first_line(check)}"}  # fmt: skip
    parameters = {"given": given.texts(), "facts": str(facts), "defect": None}
    # If requested, these two are compared with the values that ran.
    parameters |= {name: value for name in ("device", "steps") if (value := getattr(given, name))}
    document = {
        "id": name,
        "issue": job["issue"],
        "spec": "WATCH",
        "claim": _CLAIM,
        "falsifier": "harness.tools.watch.falsifier:falsify",
        "subject": _SUBJECT,
        "target": {"type": "cpu"},
        "title": f"The job {job['name']} does nothing that wastes the rest of it"[:120],
        "profiles": {
            "full": {
                "requires": {"device": "any"},
                "parameters": parameters,
                "limits": {"seconds": _SECONDS},
            }
        },
        "observation": {
            "type": "object",
            "properties": properties,
            "examples": [{name: 0 if name == "steps_seen" else [] for name in properties}],
        },
        "mutants": [_mutant(name) for name, defect in DEFECTS.items() if defect.violates not in lacks],
        "sources": [{"uri": "https://arxiv.org/abs/1711.05101", "locator": "AdamW: what a step does to the weights"}],
    }
    content = (strictjson.dumps(document, indent=1) + "\n").encode()
    return parse(strictjson.loads(content), root / "contracts" / "watch" / f"{name}.json", content)


def _first_line(check: type[Check]) -> str:
    return (check.__doc__ or "").partition("\n")[0]


def _mutant(name: str) -> dict[str, Any]:
    defect = DEFECTS[name]
    return {
        "id": name,
        "subject": _SUBJECT,
        "parameters": {"given": GIVEN.texts(), "defect": name},
        "violates": [f"{defect.violates}.maxItems"],
        "defect": defect.text,
    }


_BY_VALUE: Final = {"batches_repeated": "batch", "gradients_lost": "grad_norm", "rates_off": "learning_rate"}
_OF_FILES: Final = {*(check.name for check in CHECKPOINT_CHECKS), "disk_short"} - {TeacherApart.name}


def _not_shown(job: Fact, given: Given, trainer: Trainer | None) -> set[str]:
    is_recorded, is_local = bool(job.get("recorder")), job["is_local"]
    lacks = {
        "gpu_unused": given.device != "cuda" or not is_local,
        "losses_never_fall": given.learn_by is None,
        "device_other": not given.device or not _tells(trainer, EventKind.RAN),
        "memory_beyond_prediction": given.predicted_bytes is None or not is_local,
        "memory_creeps": given.steps is None or not is_local,
        "saves_failed": not _tells(trainer, EventKind.FAILED_SAVE),
        "ended_badly": not job["is_ours"],
        "kernels_compiled": not is_recorded,
        "allocations_refused": not is_recorded,
        "weights_unmoved": trainer is not None,
        "teacher_is_student": "teacher" not in job["roles"],
        "checkpoints_late": given.checkpoint_every is None or not job["folder"],
        "checkpoints_unmoved": "initial" not in job["roles"],
        "checkpoints_off_rate": given.optimizer != "adamw" or given.learning_rate is None,
    }
    absent = {name for name, one in lacks.items() if one} | {*job["orders"]["without"]}
    if trainer is None:
        return absent
    reported = {name for rule in trainer.lines if rule.kind is EventKind.STEP for name in rule.names}
    return (
        absent
        | {name for name, value in _BY_VALUE.items() if value not in reported}
        | (set() if job["folder"] else _OF_FILES)
    )


def _tells(trainer: Trainer | None, kind: EventKind) -> bool:
    return trainer is not None and any(rule.kind is kind for rule in trainer.lines)
