"""Whether a record agrees with what the bundle's other files tell of the same run: the machine, and the trial.

Nothing of it is judged by clauses, and yet a status hangs on it: a claim about one GPU is discharged on that GPU only,
and of several runs the newest counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from harness.base.device import Device
from harness.evidence.findings import Code, Finding
from harness.evidence.layout import ENVIRONMENT, RECORD, TRIAL
from harness.judging.record import Record

__all__ = ["agreement"]


def agreement(
    record: Record, environment: Mapping[str, Any] | None, trial: Mapping[str, Any] | None
) -> Iterator[Finding]:
    """Where they differ, and where the record's time is none.

    Args:
        environment: the document environment.json, of its schema; None where there is none that could be read.
        trial: the same for the subject's trial.json.
    """
    try:
        datetime.fromisoformat(record.started)
    except ValueError as error:
        yield Finding(Code.INVALID, RECORD, f"is no point in time: {error}", "/started")
    if environment is not None and not _has(environment["host"], record.device):
        name = record.device.name[:80]
        yield _differs("/device", f"the record has {name}; {ENVIRONMENT} tells of no such device on the machine")
    if trial is not None:
        for stream in ("stdout", "stderr"):
            if record.logs[stream] != trial["logs"][stream]:
                yield _differs(f"/logs/{stream}", f"the record has another size or sha256 than {TRIAL}")
        if record.trial_seconds != round(trial["seconds"], 3):
            yield _differs("/trial_seconds", f"the record has {record.trial_seconds}; {TRIAL} has {trial['seconds']}")


def _has(host: Mapping[str, Any], device: Device) -> bool:
    """Whether a machine has a device: one of its GPUs in every field that the record has, else its processor."""
    told = {field: value for field, value in device.to_json().items() if field != "type"}
    there = host.get("gpus", []) if device.is_cuda else [{**host, "name": host["machine"]}]
    return any(all(field in one and one[field] == value for field, value in told.items()) for one in there)


def _differs(pointer: str, message: str) -> Finding:
    return Finding(Code.REJUDGED_DIFFERENTLY, RECORD, message, pointer)
