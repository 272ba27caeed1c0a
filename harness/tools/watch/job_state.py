"""The state of a watched job. It applies the facts in order, and passes each to every check.

    job = JobState(Given(steps=500), CHECKS)
    for fact in facts:
        job.apply(fact)
    job.refutations

Kinds of facts, and their keys beside `fact` and `at`, the second of the job:

job         what is watched; the first fact. `first_step` and `every` say how its output counts steps, `folder` where
            its checkpoints are, `frozen` which tensors it does not train
output      `file`, `offset`: read up to there; `tail`: checksum of the bytes before; `events`: [kind, values, line]
checkpoint  `step`, `name`, `bytes`; `refused`, or `tensors`: name to [dtype, shape, digest, numbers not finite];
            `moved`: name to the largest movement since `since`, the step of a checkpoint; 0 is the first weights
seen        `step`: a checkpoint of that step is there
weights     `role` (initial or teacher), and `tensors` or `refused` as of a checkpoint
usage       readings of the machine, by the columns of `harness.machine.telemetry`; `free_bytes`, `busy_percent`,
            `watcher_seconds` and `waiting_percent` of a processor; `suspended`: a signal has stopped a process;
            `gpu_limit_bytes` of its GPUs, `gpu_only_bytes` of the only process on a GPU
driver      `file`, `offset` of the recorder's file; new in it: processes `started` and `ready`, how many images were
            `loaded`, `images` that must be compiled, allocations `refused`, what is `unseen`; all `launches` so far
sums        `step`, `sums`: of the magnitudes of each parameter in the job's process, by name
ended       `status`, None if it is unknown; `how`
refuted     `check`, `step`, `why`: what the watcher found
sealed      `claim`, `clauses`, `bundle`
acted       `action`, `what`; `ends`: whether the job, or its loop, was told to end
broken      `why`: the watcher failed
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from harness.base.shortening import described
from harness.execution.logs import StepSeries
from harness.tools.trainer.output_events import Event, EventKind
from harness.tools.trainer.output_summary import Telling
from harness.tools.watch.facts import Fact
from harness.tools.watch.given import Given

__all__ = ["INITIAL", "Check", "Checkpoint", "JobState", "Refutation", "StepAt"]

INITIAL: Final = 0
"""The step of the weights before the first step."""
_JUMP: Final = 10
"""Maximum missing step lines before the next one."""
_MOST_REFUTATIONS = 20
"""Maximum stored refutations of one check. Further ones would add nothing."""
_MOST_USAGE = 8192
"""Maximum stored samples of the machine. Beyond it, every second one is dropped."""

Tensors = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class StepAt:
    """A step, and the time of its line."""

    step: int
    at: float
    values: Mapping[str, float]


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint, readable or not."""

    step: int
    at: float
    name: str
    size: int
    refused: str = ""
    tensors: Tensors = field(default_factory=dict)
    moved: Mapping[str, float] = field(default_factory=dict)
    """The largest movement of an element of each tensor since the step `since`."""
    since: int | None = None

    def digests(self) -> dict[str, str]:
        """Return the digest of each tensor."""
        return {name: str(tensor[2]) for name, tensor in self.tensors.items()}


@dataclass(frozen=True)
class Refutation:
    """A refutation by a check: the step and second of the job, and the reason."""

    check: str
    step: int
    at: float
    why: str

    @property
    def text(self) -> str:
        """Return the item of the list that the check measures."""
        return f"step {self.step}, second {self.at:.1f}: {self.why}"


class Check:
    """One condition, judged fact by fact. A refutation is final.

    Attributes:
        name: the measurement: a list of refutations, which is empty as long as the condition holds.
        source: the justification of the condition.
        needs: the data that it needs to be judged, as text.
        judged: whether the facts so far had these data.
    """

    name = ""
    source = ""
    needs = ""

    def __init__(self, job: JobState) -> None:
        self.job, self.given = job, job.given
        self.judged = False
        self.found: list[Refutation] = []
        self.begin()

    def begin(self) -> None:
        """Initialize the check's state."""

    def refute(self, why: str, step: int | None = None) -> None:
        """Record a refutation now, at the newest step or at `step`."""
        if len(self.found) < _MOST_REFUTATIONS:
            step = self.job.step if step is None else step
            self.found.append(Refutation(self.name, step, self.job.at, why))

    def on_step(self, step: StepAt) -> None:
        """Take a step."""

    def on_event(self, event: Event) -> None:
        """Take any other event of the output."""

    def on_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Take a checkpoint."""

    def on_weights(self, role: str, weights: Checkpoint) -> None:
        """Take the first weights, or the teacher's."""

    def on_usage(self, usage: Fact) -> None:
        """Take a sample of the machine."""

    def on_driver(self, driver: Fact) -> None:
        """Take new events of the CUDA driver."""

    def on_sums(self, sums: Fact) -> None:
        """Take sums of the weights in memory."""

    def on_time(self) -> None:
        """Handle the passing of time. Called with every fact."""

    def on_end(self, status: int | None) -> None:
        """Take the end of the job."""


class JobState:
    """The state of a job after the facts so far."""

    def __init__(self, given: Given, checks: Sequence[type[Check]]) -> None:
        self.given = given
        self.at = 0.0
        self.telling = Telling(self._on_step)
        self.first: StepAt | None = None
        """The step from which on times are known."""
        self.newest: StepAt | None = None
        self.series = StepSeries()
        self._held: StepAt | None = None
        self._stride = 0
        """The number of steps from the last line of a step to the one before; 0 before the second."""
        self.usage: list[Fact] = []
        self.driver: Counter[str] = Counter()
        """Of all processes, by key of the fact: how many were `started`, `ready`, and `unseen` or not in full."""
        self.launches: dict[str, int] = {}
        """By file of the recorder."""
        self.checkpoints: dict[int, Checkpoint] = {}
        self.weights: dict[str, Checkpoint] = {}
        self.places: dict[str, tuple[int, int]] = {}
        """By file of the output, up to where it was read, and the checksum of the bytes before that."""
        self.output_at = 0.0
        """When the output had something new."""
        self.step_file = ""
        """The file in which steps were found first."""
        self.seen: set[int] = set()
        """Steps whose checkpoint was there, read or not."""
        self.status: int | None = None
        self.how = ""
        """How the job ended; empty while it runs."""
        self.description: Fact = {}
        self.sealed: list[Fact] = []
        self.acted: list[Fact] = []
        self.broken: list[Fact] = []
        self.failed = ""
        """Why a fact could not be taken; empty if all could."""
        self.reported: list[Refutation] = []
        """The refutations that are facts already."""
        self.checks: tuple[Check, ...] = tuple(kind(self) for kind in checks)

    @property
    def step(self) -> int:
        """The newest step, from 1; 0 before the first."""
        return self.newest.step if self.newest is not None else 0

    @property
    def pace(self) -> float | None:
        """The seconds of a step so far; None before the second."""
        if self.first is None or self.newest is None or self.newest.step <= self.first.step:
            return None
        return (self.newest.at - self.first.at) / (self.newest.step - self.first.step)

    @property
    def made(self) -> int | None:
        """The number of steps by the run's summary, else the newest step; None before the first."""
        return self.telling.told_steps if self.telling.told_steps is not None else self.step or None

    @property
    def is_over(self) -> bool:
        """Whether the job has ended."""
        return bool(self.how)

    @property
    def sees_driver(self) -> bool:
        """Whether the recorder observes all requests of the job's processes to the CUDA driver."""
        is_recorded = bool(self.description.get("recorder"))
        return is_recorded and self.driver["ready"] > 0 and not self.driver["unseen"]

    @property
    def launched(self) -> int:
        """The number of kernel launches that the recorder counted: at least half of all."""
        return sum(self.launches.values())

    @property
    def seen_on_gpu(self) -> bool | None:
        """Whether the driver listed a process of the job or launched a kernel of it; None if that is undecided.

        No process is on the GPU before its first kernel, so only the samples of a whole job show that it uses none. In
        another PID namespace, the driver's ids match no process here, so such a sample is undecided.
        """
        seen = {fact.get("gpu_seen") for fact in self.usage}
        if True in seen or self.launched:
            return True
        return False if self.is_over and seen == {False} else None

    def memory(self, usage: Fact, on_host: str) -> float | None:
        """Return the used bytes in a sample: on the GPU if the job should use one, else in the column `on_host`."""
        used: float | None = usage.get(on_host)
        if self.given.device == "cuda":
            used = usage.get("gpu_process_memory_bytes", usage.get("gpu_only_bytes") if self.launched else None)
        return used

    @property
    def was_ended(self) -> bool:
        """Whether the watcher ended the job."""
        return any(fact.get("ends") for fact in self.acted)

    @property
    def refutations(self) -> list[Refutation]:
        """The refutations of all checks, in the order of time."""
        return sorted(
            (refutation for check in self.checks for refutation in check.found), key=lambda refutation: refutation.at
        )

    def apply(self, fact: Fact) -> None:
        """Apply the next fact. `failed` names a check that raises; a replay of the same facts fails in the same way."""
        try:
            self._apply(fact)
        except Exception as error:
            self.failed = self.failed or described(error)

    def _apply(self, fact: Fact) -> None:
        self.at = max(self.at, float(fact["at"]))
        kind = fact["fact"]
        if kind == "output":
            self.places[fact["file"]] = fact["offset"], fact.get("tail", 0)
            self.output_at = self.at
            for name, values, line in fact["events"]:
                if name == EventKind.STEP:
                    self.step_file = self.step_file or fact["file"]
                self._event(Event(EventKind(name), values, line))
        elif kind in ("checkpoint", "weights"):
            self._weights(kind, fact)
        elif kind == "usage":
            self._usage(fact)
        elif kind == "driver":
            self._driver(fact)
        elif kind == "seen":
            self.seen.add(fact["step"])
        elif kind == "sums":
            self._tell("on_sums", fact)
        elif kind == "ended":
            self._end(fact)
        elif kind == "job":
            self.description = fact
            self.telling = Telling(self._on_step, fact.get("first_step", 1), fact.get("every", 1))
        elif kind == "refuted":
            self.reported.append(Refutation(fact["check"], fact["step"], fact["at"], fact["why"]))
        elif kind in ("sealed", "acted", "broken"):
            getattr(self, kind).append(fact)
        if not self.is_over:
            self._tell("on_time")

    def _event(self, event: Event) -> None:
        self.telling.hear(event)
        if event.kind is not EventKind.STEP:
            self._tell("on_event", event)

    def _on_step(self, step: int, values: Mapping[str, float]) -> None:
        """Take a step. A step number far from the previous one counts only if the next step follows it, because two
        processes can garble a line."""
        now, held = StepAt(step, self.at, values), self._held
        self._held = None
        if held is not None and held.step < step <= held.step + _JUMP * max(self._stride, held.step - self.step):
            self._count(held)
        if self.newest is not None and self._stride and not 0 < step - self.step <= _JUMP * self._stride:
            self._held = now
            return
        self._count(now)

    def _count(self, now: StepAt) -> None:
        step, values = now.step, now.values
        if self.newest is not None:
            self._stride = max(step - self.newest.step, 1)
        self.newest = now
        if self.first is None or self.first.at == now.at:  # of the lines printed before the watch began, the last
            self.first = now
        self.series.add({"step": step, "seconds": round(self.at, 3), **values})
        self._tell("on_step", self.newest)

    def _weights(self, kind: str, fact: Fact) -> None:
        keys = ("refused", "tensors", "moved", "since")
        found = Checkpoint(
            int(fact.get("step", INITIAL)), float(fact["at"]), fact["name"], fact["bytes"],
            **{key: fact[key] for key in keys if key in fact},
        )  # fmt: skip
        if kind == "checkpoint":
            self._tell("on_checkpoint", found)
            self.checkpoints[found.step] = found
            self.seen.add(found.step)
        else:
            self.weights[fact["role"]] = found
            self._tell("on_weights", fact["role"], found)

    def _driver(self, fact: Fact) -> None:
        self.places[fact["file"]] = fact["offset"], 0
        self.driver.update(
            started=fact.get("started", 0), ready=fact.get("ready", 0), unseen=len(fact.get("unseen", ()))
        )
        self.launches[fact["file"]] = max(fact.get("launches", 0), self.launches.get(fact["file"], 0))
        self._tell("on_driver", fact)

    def _usage(self, fact: Fact) -> None:
        self.usage.append(fact)
        if len(self.usage) > _MOST_USAGE:
            del self.usage[1::2]
        self._tell("on_usage", fact)

    def _end(self, fact: Fact) -> None:
        self.telling.end()
        if self._held is not None and self._held.step > self.step:
            self._count(self._held)
        self.status, self.how = fact["status"], fact["how"]
        self._tell("on_end", self.status)

    def _tell(self, name: str, *values: Any) -> None:
        for check in self.checks:
            try:
                getattr(check, name)(*values)
            except Exception as error:
                self.failed = self.failed or f"{check.name}: {described(error)}"
