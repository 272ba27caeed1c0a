"""Creates a watcher for a job: one that it starts, a running one, or one that an earlier watcher followed."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.authoring.faults import NotMeasured
from harness.base import regular_file
from harness.contract import Contract
from harness.contract.other_subject import Subject
from harness.contract.project import Project
from harness.machine.host import has_gpu_driver, probe
from harness.machine.process_tree import started
from harness.tools.atomic_file import write_file
from harness.tools.one_claim import project_here
from harness.tools.trainer import directory
from harness.tools.trainer.output_events import EventKind
from harness.tools.trainer.subjects import Recorded
from harness.tools.trainer.trainer_file import Trainer, load
from harness.tools.watch.checkpoint_reading import CheckpointReader, sizes_of, weights_fact, weights_path
from harness.tools.watch.claims import claims_of, job_claim
from harness.tools.watch.contract import contract_of
from harness.tools.watch.driver_reading import DriverFollower, recorded_by, recorder_variables
from harness.tools.watch.facts import FACTS, Fact, FactFile, new_state
from harness.tools.watch.given import Given, given_of
from harness.tools.watch.job_state import JobState
from harness.tools.watch.log_reading import LogFollower
from harness.tools.watch.machine_reading import MachineReader
from harness.tools.watch.page import watch_page
from harness.tools.watch.process import OUTPUT, JobProcess, outputs_of, start
from harness.tools.watch.sealing import Judge
from harness.tools.watch.watcher import Orders, Readers, Watcher

__all__ = ["Asked", "begin", "resume"]

Say = Callable[[str], None]
Show = Callable[[bytes], None]


@dataclass(frozen=True)
class Asked:
    """The request of the command line."""

    trainer: Path
    values: Mapping[str, Any]
    """The parameters of the watch, the claims and the trainer."""
    folder: Path | None
    """The trainer's output folder; None if unknown."""
    orders: Orders
    issue: str = "WATCH"
    evidence: Path | None = None
    name: str = ""
    page: Path | None = None
    command: Sequence[str] = ()
    pid: int | None = None
    is_attached: bool = False
    """Whether the job is already running."""
    records: bool = False
    """Whether to start the job with the CUDA recorder."""


def begin(asked: Asked, state: Path | None, project: Project, say: Say, show: Show) -> Watcher:
    """Start the job, or attach to it, and return its watcher.

    Raises:
        NotMeasured: the trainer's file is wrong.
        ValueError: a parameter or a setting is wrong.
        OSError: the job cannot be started, or facts cannot be written.
    """
    trainer = load(asked.trainer)
    values = {**asked.values, "output": str(asked.folder or ""), "seed": asked.values.get("seed", 0),
              "here": str(asked.trainer.resolve().parent), "python": sys.executable}  # fmt: skip
    given = _given(trainer, values)
    if given.device:
        values.setdefault("device", given.device)
    name = asked.name or trainer.name
    if state is not None and (state / FACTS).exists():
        raise ValueError(f"{state} has the facts of a job already; --resume {state} continues it")
    state = new_state(name, state).resolve()
    facts = FactFile(state / FACTS)
    # The weights before the first step must be read before it.
    roles = {"initial": (trainer.files.initial, trainer.files.initial_prefix),
             "teacher": (trainer.models.teacher, trainer.models.teacher_prefix)}  # fmt: skip
    weights = [
        weights_fact(role, path, prefix, 0.0)
        for role, (text, prefix) in roles.items()
        if (path := weights_path(trainer, values, text)) is not None
    ]
    environment = {} if asked.command or asked.is_attached else trainer.variables(values)
    try:
        folder, absent = _recorder(asked, given, state, environment), ""
    except NotMeasured as error:
        folder, absent = "", str(error)
        if asked.records:
            say(f"harness watch: the recorder of the CUDA driver is absent: {error}")
    began = _began(asked.pid) if asked.pid is not None else None
    job: dict[str, Any] = {
        "fact": "job",
        "at": 0.0,
        "name": name,
        "told": shlex.join(asked.command) or str(asked.folder or asked.pid or asked.orders.slurm),
        "trainer": str(asked.trainer.resolve()),
        "values": values,
        "folder": str(asked.folder or "") if trainer.files.checkpoints else "",
        "frozen": trainer.files.frozen.pattern if trainer.files.frozen is not None else "",
        "first_step": trainer.first_step,
        "every": trainer.every,
        "tells_saves": any(rule.kind is EventKind.FAILED_SAVE for rule in trainer.lines),
        "runs_on": "" if has_gpu_driver() or (asked.is_attached and asked.pid is None) else "cpu",
        "is_local": not asked.is_attached or asked.pid is not None,
        "is_ours": not asked.is_attached,
        "root": str(project.root),
        "issue": asked.issue,
        "evidence": str(asked.evidence or ""),
        "prints_to": [str(path) for path in outputs_of(asked.pid)] if asked.pid is not None else [],
        "recorder": folder,
        "recorder_absent": absent,
        "page": str(asked.page or ""),
        "orders": asked.orders.to_json(),
        "roles": [fact["role"] for fact in weights],
    }
    watcher_of = _prepared(facts, job, trainer, project, say, show)

    def record(process: JobProcess | None) -> None:
        ids = {} if process is None else {"pid": process.pid, "started_at": process.started_at}
        facts.earlier = ({**job, "epoch": time.time() if began is None else began, **ids}, *weights)
        for fact in facts.earlier:
            facts.append(fact)

    # No refusal can follow, so the job can start.
    if not asked.is_attached:
        return watcher_of(start(asked.command or trainer.words(values), state, environment, record))
    process = JobProcess(asked.pid, started(asked.pid), state, is_ours=False) if asked.pid is not None else None
    record(process)
    return watcher_of(process)


def _recorder(asked: Asked, given: Given, state: Path, environment: dict[str, str]) -> str:
    """Return the folder of the recorder, and add its variables. Raises NotMeasured if there is none."""
    if given.device == "cpu":
        raise NotMeasured("the job is to run on the CPU")
    if asked.is_attached:
        if asked.pid is None:
            raise NotMeasured("the job is no process of this machine")
        return str(recorded_by(asked.pid))
    if not asked.records:
        raise NotMeasured("it was not asked for by --record")
    environment |= recorder_variables(state)
    return str(state / "recorder")


def resume(state: Path, say: Say, show: Show) -> Watcher:
    """Return a watcher that continues with the facts of an earlier one.

    Raises:
        ValueError: there are no facts of a job in the folder.
    """
    state = state.resolve()
    if not (state / FACTS).is_file():
        raise ValueError(f"there are no facts of a job in {state}")
    facts = FactFile(state / FACTS)
    job = facts.earlier[0] if facts.earlier else {}
    if job.get("fact") != "job" or "trainer" not in job:
        raise ValueError(f"{state / FACTS} does not begin with a job that a watcher follows from outside")
    watcher_of = _prepared(facts, job, load(Path(job["trainer"])), project_here(Path(job["root"])), say, show)
    if job.get("pid") is None:
        return watcher_of(None)
    return watcher_of(JobProcess(job["pid"], job["started_at"], state, is_ours=job["is_ours"]))


def _given(trainer: Trainer, values: Mapping[str, Any]) -> Given:
    """Return the parameters of the watch among the given values and the trainer's own."""
    return given_of({name: trainer.value(name, values) for name in (*values, *trainer.parameters)})


def _prepared(
    facts: FactFile, job: Fact, trainer: Trainer, project: Project, say: Say, show: Show
) -> Callable[[JobProcess | None], Watcher]:
    """Return what makes the watcher of a job's process. Raises ValueError if a claim on the job cannot be judged."""
    host, values, state = probe(project.root), job["values"], facts.path.parent
    given = _given(trainer, values)
    contract = contract_of(job, given, trainer, facts.path, project.root)
    command = f"harness watch --resume {state}"
    sources, of = _sources(trainer, project, values, given)
    claims = [job_claim(contract, given, host, command), *claims_of(project, of, command, given.device or "cpu")]
    judge = Judge(project, host, Path(job["evidence"]) if job["evidence"] else None, claims, sources)
    output, folder = values["output"], Path(job["folder"]) if job["folder"] else None

    def logs() -> list[Path]:
        files = directory.logs(trainer, Path(output)) if output and Path(output).is_dir() else []
        if job["is_ours"]:
            return [state / OUTPUT, *files]
        return [*dict.fromkeys(path.resolve() for path in (*files, *map(Path, job.get("prints_to", ()))))]

    def draw(now: JobState) -> None:
        write_file(Path(job["page"]), watch_page(now))

    def watcher_of(process: JobProcess | None) -> Watcher:
        if not logs():
            say("harness watch: there is no file of the job's output yet; without one, steps and losses are not judged")
        first = weights_path(trainer, values, trainer.files.initial)
        expected = 0 if first is None else sum(size for size, _ in sizes_of(first))
        readers = Readers(
            LogFollower(trainer, logs, show if job["is_ours"] else lambda _: None),
            CheckpointReader(trainer, values, given) if folder is not None else None,
            MachineReader(host, process.pid if process is not None else None, folder, expected),
            process,
            DriverFollower(Path(recorded)) if (recorded := job.get("recorder", "")) else None,
        )
        orders, epoch = Orders.from_json(job["orders"]), facts.earlier[0]["epoch"]
        return Watcher(facts, epoch, given, readers, judge, orders, say, draw if job["page"] else None)

    return watcher_of


def _sources(
    trainer: Trainer, project: Project, values: Mapping[str, Any], given: Given
) -> tuple[dict[str, str], Callable[[Contract], Subject] | None]:
    """Return the digests of the trainer's files in the project, and the trainer as the subject of its claims."""
    path = trainer.path.resolve()
    if not path.is_relative_to(project.root):
        return {}, None
    files = [path, *(one for name in trainer.sources if (one := project.root / name).is_file())]
    sources = {file.relative_to(project.root).as_posix(): regular_file.sha256(file) for file in files}
    name = path.relative_to(project.root).as_posix()
    kept = {key: value for key, value in values.items() if key not in ("output", "here", "python", "seed")}
    kept = {"trainer": name, **kept, "dir": values["output"], "device": given.device or "cpu"}

    def of(contract: Contract) -> Subject:
        entry_point = Recorded.entry_point(contract.falsifier)
        return Subject(entry_point, f"recorded:{name}", kept, sources=sources, is_over=True)

    return sources, of


def _began(pid: int) -> float:
    """Return the start time of a process. Raises ValueError if it does not exist."""
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error as error:
        raise ValueError(f"there is no process {pid}") from error
