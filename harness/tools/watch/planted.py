"""The facts of a healthy job, and the same with one defect each: the mutants that prove the checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from harness.tools.watch.facts import Fact
from harness.tools.watch.given import Given

__all__ = ["DEFECTS", "GIVEN", "Defect", "healthy", "planted"]

GIVEN: Final = Given(
    device="cpu",
    steps=120,
    learning_rate=0.01,
    schedule="constant",
    optimizer="adamw",
    checkpoint_every=20,
    predicted_bytes=float(3 << 30),
    learn_by=60,
    window=5,
    collapse_seconds=10.0,
    creep_seconds=10.0,
)
"""The requested values of the healthy job. A step takes a second."""
_GIB: Final = 1 << 30
_NAMES: Final = ("embedding", "layer.weight", "layer.bias", "head")


def healthy() -> list[Fact]:
    """Return the facts of a job of 120 steps with a checkpoint after every 20th, one fact for each line."""
    facts: list[Fact] = [
        {"fact": "job", "at": 0.0, "folder": "run", "tells_saves": True, "recorder": "records"},
        {"fact": "weights", "at": 0.0, "role": "initial", **_weights(0)},
        {"fact": "weights", "at": 0.0, "role": "teacher", **_weights(-1)},
        _output(0.0, "ran", {"device": "cpu"}),
    ]
    for step in range(1, 121):
        # 4.0 falls to 1.4, and batches scatter by a few percent.
        loss = 1.0 + 3.0 * 0.983**step + 0.05 * ((step * 7) % 5 - 2)
        values = {"step": f"{step}", "loss": f"{loss:.5f}", "learning_rate": "0.01", "grad_norm": "0.8"}
        facts.append(_output(float(step), "step", {**values, "batch": f"{step * 7919}", "epoch": "1"}))
        if step % 20 == 0:
            facts.append(_checkpoint(step))
        if step % 5 == 1:
            told = {"started": 1, "ready": 1, "images": ["cuModuleLoadData"], "loaded": 1} if step == 1 else {}
            facts.append({"fact": "driver", "at": float(step), "file": "1.jsonl", "offset": step, **told,
                          "launches": 50 * step})  # fmt: skip
        memory = (2.0 - 1.0 / step) * _GIB
        used = {"rss_bytes": memory, "anonymous_bytes": memory, "limit_bytes": 16.0 * _GIB}
        facts.append({"fact": "usage", "at": float(step), **used, "free_bytes": 100 * _GIB, "others_percent": 3.0})
        facts.append({"fact": "sums", "at": float(step), "step": step, "sums": {"head": 4.0 + 0.01 * step}})
    return [*facts, {"fact": "ended", "at": 121.0, "status": 0, "how": "it ended with status 0"}]


def _output(at: float, kind: str, values: Mapping[str, str]) -> Fact:
    return {"fact": "output", "at": at, "file": "output.log", "offset": int(at), "events": [[kind, values, ""]]}


def _weights(step: int) -> dict[str, Any]:
    tensors = {name: ["F32", [64, 64], f"{name} of step {step}", 0] for name in _NAMES}
    return {"name": f"step-{step}", "bytes": 1 << 16, "tensors": tensors}


def _checkpoint(step: int) -> Fact:
    moved = {name: 0.01 * min(step, 20) for name in _NAMES}
    return {"fact": "checkpoint", "at": float(step) + 0.5, "step": step, **_weights(step), "moved": moved,
            "since": step - 20}  # fmt: skip


@dataclass(frozen=True)
class Defect:
    """A defect that wastes a run, and the measurement that it must violate."""

    violates: str
    text: str
    change: Callable[[Fact], Sequence[Fact]]
    """Returns the facts that replace a healthy fact."""


def planted(defect: str) -> list[Fact]:
    """Return the facts of the healthy job with a defect."""
    return [fact for healthy_fact in healthy() for fact in DEFECTS[defect].change(healthy_fact)]


def _value(name: str, text: Callable[[int], str | None]) -> Callable[[Fact], Sequence[Fact]]:
    """Return a defect in one value of the steps. None leaves it unchanged."""

    def changed(fact: Fact) -> Mapping[str, Any]:
        ((kind, values, line),) = fact["events"]
        found = text(int(values["step"])) if kind == "step" else None
        return {} if found is None else {"events": [[kind, {**values, name: found}, line]]}

    return _of("output", changed)


def _of(kind: str, change: Callable[[Fact], Mapping[str, Any] | None]) -> Callable[[Fact], Sequence[Fact]]:
    """Return a defect in the facts of a kind. None drops a fact."""

    def changed(fact: Fact) -> Sequence[Fact]:
        if fact["fact"] != kind:
            return [fact]
        keys = change(fact)
        return [] if keys is None else [{**fact, **keys}]

    return changed


def _tensors(change: Callable[[str, list[Any]], list[Any] | None]) -> Callable[[Fact], Sequence[Fact]]:
    """Return a defect in the tensors of the checkpoints. None drops a tensor."""

    def changed(fact: Fact) -> Mapping[str, Any]:
        tensors = {name: change(name, tensor) for name, tensor in fact["tensors"].items()}
        return {"tensors": {name: tensor for name, tensor in tensors.items() if tensor is not None}}

    return _of("checkpoint", changed)


def _slow(fact: Fact) -> Sequence[Fact]:
    """From step 60 on, each second takes ten."""
    late = fact["at"] - 60.0
    return [fact if late <= 0 else {**fact, "at": 60.0 + 10.0 * late}]


def _hang(fact: Fact) -> Sequence[Fact]:
    """No step comes after step 60, and a sample each ten seconds."""
    at = fact["at"]
    if at <= 60.0:
        return [fact]
    return [{**fact, "at": 60.0 + 10.0 * (at - 60.0)}] if fact["fact"] == "usage" else []


DEFECTS: Final[Mapping[str, Defect]] = {
    "nan-from-step-30": Defect(
        "losses_not_finite",
        "the loss is NaN from step 30 on",
        _value("loss", lambda step: "nan" if step >= 30 else None),
    ),
    "constant-loss": Defect("losses_constant", "the loss never changes", _value("loss", lambda step: "4.0")),
    "unlearnable-batch": Defect(
        "losses_rise", "the loss rises from 4 to 8", _value("loss", lambda step: f"{4.0 + step / 30}")
    ),
    "nothing-learned": Defect(
        "losses_never_fall", "the loss stays where it began", _value("loss", lambda step: f"{4.0 + 0.05 * (step % 5)}")
    ),
    "stuck-loader": Defect("batches_repeated", "every step has the first batch", _value("batch", lambda step: "7919")),
    "dead-gradient": Defect("gradients_lost", "every gradient is 0", _value("grad_norm", lambda step: "0.0")),
    "whole-epochs": Defect("steps_untrue", "the run announces 124 steps", _value("total", lambda step: "124")),
    "rate-of-zero": Defect("rates_off", "the learning rate is 0", _value("learning_rate", lambda step: "0.0")),
    "failing-saves": Defect(
        "saves_failed",
        "no checkpoint can be written",
        lambda fact: [_output(fact["at"], "failed_save", {})] if fact["fact"] == "checkpoint" else [fact],
    ),
    "no-checkpoints": Defect("checkpoints_late", "no checkpoint is written", _of("checkpoint", lambda fact: None)),
    "empty-checkpoints": Defect(
        "checkpoints_unreadable", "checkpoints hold no tensor", _tensors(lambda name, tensor: None)
    ),
    "tensor-lost": Defect(
        "checkpoints_incomplete",
        "the head is not saved",
        _tensors(lambda name, tensor: None if name == "head" else tensor),
    ),
    "nan-weights": Defect(
        "checkpoints_not_finite",
        "the head has a NaN",
        _tensors(lambda name, tensor: [*tensor[:3], name == "head"]),
    ),
    "idle-optimizer": Defect(
        "checkpoints_unmoved",
        "no step moves the weights",
        _tensors(lambda name, tensor: [*tensor[:2], f"{name} of step 0", 0]),
    ),
    "stale-checkpoints": Defect(
        "checkpoints_stale",
        "each checkpoint holds the weights of step 20",
        _tensors(lambda name, tensor: [*tensor[:2], f"{name} of step 20", 0]),
    ),
    "tenfold-rate": Defect(
        "checkpoints_off_rate",
        "the optimizer has ten times the rate",
        _of("checkpoint", lambda fact: {"moved": {name: 10 * moved for name, moved in fact["moved"].items()}}),
    ),
    "copied-teacher": Defect(
        "teacher_is_student",
        "the teacher is a copy of the student",
        _of("weights", lambda fact: {"tensors": _weights(0)["tensors"]}),
    ),
    "hanging-loader": Defect("stalled", "no step comes after step 60", _hang),
    "throttled": Defect("throughput_collapsed", "from step 60 on a step takes ten times as long", _slow),
    "leak": Defect(
        "memory_creeps",
        "each step keeps 150 MiB",
        _of("usage", lambda fact: {"anonymous_bytes": 2.0 * _GIB + fact["at"] * 150 * 2**20}),
    ),
    "twice-the-memory": Defect(
        "memory_beyond_prediction",
        "the job uses twice the memory",
        _of("usage", lambda fact: {"rss_bytes": 6.0 * _GIB}),
    ),
    "disk-nearly-full": Defect("disk_short", "the disk is full", _of("usage", lambda fact: {"free_bytes": 1000})),
    "recompiled-kernels": Defect(
        "kernels_compiled",
        "the driver gets new kernels as long as the job runs",
        _of("driver", lambda fact: {"loaded": 1}),
    ),
    "refused-memory": Defect(
        "allocations_refused",
        "the driver refuses memory as long as the job runs",
        _of("driver", lambda fact: {"refused": ["cuMemAlloc_v2: 1073741824 bytes"]}),
    ),
    "another-device": Defect(
        "device_other",
        "the output names another device",
        lambda fact: [_output(0.0, "ran", {"device": "mps"})] if fact["fact"] == "job" else [fact],
    ),
    "frozen-in-memory": Defect("weights_unmoved", "weights stand", _of("sums", lambda fact: {"sums": {"head": 4.0}})),
    "crash": Defect("ended_badly", "the job ends with status 1", _of("ended", lambda fact: {"status": 1})),
}
"""Defects by name. Those of GPU use have their own facts, because the healthy job has no GPU."""
