"""The contract of a watched job: the bounds of its checks, and the defects that prove them."""

from __future__ import annotations

import re
from collections.abc import Collection
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from harness.base import strictjson
from harness.contract import Contract
from harness.contract.loader import parse
from harness.external.output_events import EventKind
from harness.external.trainer_file import Trainer
from harness.tools.watch.given import Given
from harness.tools.watch.planted import DEFECTS, GIVEN

__all__ = ["claim_name", "contract_of", "not_shown"]

_TEMPLATE: Final = strictjson.loads(files("harness.tools.watch").joinpath("contract.template.json").read_bytes())
_SECONDS: Final = 600


def claim_name(job: str) -> str:
    """Return the id of the claim on a job of this name."""
    return f"F-WATCH-{re.sub('[^A-Z0-9]+', '-', job.upper()).strip('-')[:40].strip('-') or 'JOB'}-001"


def contract_of(job: str, issue: str, given: Given, facts: Path, lacks: Collection[str], root: Path) -> Contract:
    """Return the contract of a job.

    Args:
        job: its name.
        facts: the file with its facts.
        lacks: the measurements that the job cannot show. The claim does not speak of them.
        root: the project's root.
    """
    name = claim_name(job)
    template = _TEMPLATE["observation"]["properties"]
    properties = {one: schema for one, schema in template.items() if one not in lacks}
    parameters = {"given": given.texts(), "facts": str(facts), "defect": None}
    # These two are compared with what ran, if they were asked for.
    parameters |= {one: value for one in ("device", "steps") if (value := getattr(given, one))}
    document = {
        **_TEMPLATE,
        "id": name,
        "issue": issue,
        "title": f"The job {job} does nothing that wastes the rest of it"[:120],
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
            "examples": [{one: 0 if one == "steps_seen" else [] for one in properties}],
        },
        "mutants": [_mutant(one) for one, defect in DEFECTS.items() if defect.violates not in lacks],
        "sources": [{"uri": "https://arxiv.org/abs/1711.05101", "locator": "AdamW: what a step does to the weights"}],
    }
    content = (strictjson.dumps(document, indent=1) + "\n").encode()
    return parse(strictjson.loads(content), root / "contracts" / "watch" / f"{name}.json", content)


def _mutant(name: str) -> dict[str, Any]:
    defect = DEFECTS[name]
    return {
        "id": name,
        "subject": _TEMPLATE["subject"],
        "parameters": {"given": GIVEN.texts(), "defect": name},
        "violates": [f"{defect.violates}.maxItems"],
        "defect": defect.text,
    }


_BY_VALUE: Final = {"batches_repeated": "batch", "gradients_lost": "grad_norm", "rates_off": "learning_rate"}
_OF_CHECKPOINTS: Final = (
    "checkpoints_late",
    "checkpoints_unreadable",
    "checkpoints_incomplete",
    "checkpoints_not_finite",
    "checkpoints_stale",
    "checkpoints_unmoved",
    "checkpoints_off_rate",
    "disk_short",
)


def not_shown(
    given: Given,
    trainer: Trainer | None,
    *,
    follows_files: bool,
    has_initial: bool,
    has_teacher: bool,
    has_process: bool,
    knows_end: bool,
    is_recorded: bool,
) -> frozenset[str]:
    """Return the measurements that a job cannot show, by what is known before it starts."""
    lacks = {
        "gpu_unused": given.device != "cuda" or not has_process,
        "losses_never_fall": given.learn_by is None,
        "device_other": not given.device or not _tells(trainer, EventKind.RAN),
        "memory_beyond_prediction": given.predicted_bytes is None or not has_process,
        "memory_creeps": given.steps is None or not has_process,
        "saves_failed": not _tells(trainer, EventKind.FAILED_SAVE),
        "ended_badly": not knows_end,
        "kernels_compiled": not is_recorded,
        "allocations_refused": not is_recorded,
        "weights_unmoved": trainer is not None,
        "teacher_is_student": not has_teacher,
        **{name: trainer is not None and value not in _values(trainer) for name, value in _BY_VALUE.items()},
        **dict.fromkeys(_OF_CHECKPOINTS, not follows_files),
    }
    if follows_files:
        lacks |= {
            "checkpoints_late": given.checkpoint_every is None,
            "checkpoints_unmoved": not has_initial,
            "checkpoints_off_rate": given.optimizer != "adamw" or given.learning_rate is None,
        }
    return frozenset(name for name, one in lacks.items() if one)


def _tells(trainer: Trainer | None, kind: EventKind) -> bool:
    return trainer is not None and any(rule.kind is kind for rule in trainer.lines)


def _values(trainer: Trainer) -> set[str]:
    return {
        name
        for rule in trainer.lines
        if rule.kind is EventKind.STEP
        for name in (rule.keys if rule.keys is not None else rule.pattern.groupindex)
    }
