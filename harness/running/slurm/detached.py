"""Runs that continue without a client: arrays of Slurm jobs, and one file for each run that lists them.

    run = detach(submission, options, shards=None)
    …
    for claim, task in saved(evidence, run.name).tasks(evidence).items():
        task.follow(on_line, on_word)

Each task of an array is `harness run` for one claim or several, and appends its events to a file. Slurm can begin a
task again, after a preemption or the loss of a node. The task then leaves out the claims that its file calls finished.
"""

from __future__ import annotations

import errno
import json
import re
import shlex
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import final

from harness.base import strictjson
from harness.base.beneath import Beneath
from harness.base.json_dataclass import JsonDataclass
from harness.base.regular_file import opened, read
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import ExitStatus, Verdict
from harness.contract import Contract
from harness.machine.limited_process import parsed
from harness.running.events import ClaimEnded, NoEventError, decode
from harness.running.slurm.job import ask
from harness.running.slurm.judged_bundle import NAME, BundleRefused, judged_bundle
from harness.running.slurm.submission import HARNESS, Submission

__all__ = [
    "DetachedRun", "RunFileError", "Task", "UnknownRunError", "detach", "ended_claims", "load_run", "run_files",
    "saved", "verdicts",
]  # fmt: skip

_FOLDER = ".runs"
_LOOK_SECONDS, _ASK_EVERY = 0.5, 2.0
_GOING = frozenset({
    "PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUED", "RESIZING", "SIGNALING", "STAGE_OUT",
    "UNKNOWN",
})  # fmt: skip
"""The states of a task that has not ended. It is UNKNOWN while Slurm does not answer."""
_SUBMIT_SECONDS = 60.0
_JOB = re.compile("[0-9]{1,20}")
_MOST_BYTES = 64 << 20
"""Of a file of events."""
_MOST_ENDS = 10_000
"""Ends of claims in a file of events; only the last ones are read. Slurm begins a task again a few times."""


class UnknownRunError(ValueError):
    """There is no run of this name. The text names the runs that exist."""


class RunFileError(ValueError):
    """The file of a run cannot be read, or is no such file. The text names the file and says what is wrong."""


@final
class Task:
    """The task of a claim, as the dispatcher sees it."""

    def __init__(self, claim: str, job: str, index: int, folder: Path) -> None:
        self.claim, self.number = claim, f"{job}_{index}"
        self._job, self._index, self._left = job, str(index), False
        self._file = folder / f"{self.number}.events"

    def state(self) -> str:
        """The state, in Slurm's words. Slurm forgets jobs that ended long ago; `sacct` may know them."""
        states = _states(self._job, int(time.monotonic() / _ASK_EVERY))
        if states is not None and self._index in states:
            return states[self._index]
        told = (ask(["sacct", "-X", "-n", "-P", "-o", "State", "-j", self.number]) or "").split()
        return told[0] if told else "UNKNOWN" if states is None else "COMPLETED"

    def verdict(self, evidence: Path, contract: Contract, name: str) -> Verdict | None:
        """Return the verdict of the claim's bundle; None if none is sound. Raises OSError as `verdicts` does."""
        return verdicts(self._file, evidence, [contract], name).get(self.claim)

    def follow(self, on_line: Callable[[str], None], on_word: Callable[[str], None]) -> int:
        """Pass on the claim's events until the task has ended or is left. Returns an exit status."""
        offset, about = 0, f'"{self.claim}"'.encode()
        while True:
            state = self.state()  # asked before reading, so that the last lines are read
            with suppress(FileNotFoundError), opened(self._file) as stream:
                stream.seek(offset)
                content = stream.read(_MOST_BYTES + 1)
                if len(content) > _MOST_BYTES:
                    raise OSError(errno.EFBIG, f"has more than {_MOST_BYTES} bytes", str(self._file))
                whole = content[: content.rfind(b"\n") + 1]
                offset += len(whole)
                for line in _lines_with(about, whole):
                    on_line(line.decode(errors="backslashreplace"))
            if self._left or state not in _GOING:
                return ExitStatus.PASS if state == "COMPLETED" else ExitStatus.INTERRUPTED
            if shutil.which("squeue") is None:  # nothing here tells whether the task continues
                return ExitStatus.PASS
            time.sleep(_LOOK_SECONDS)

    def ended_by(self) -> str:
        """Return the end of the task, in Slurm's words."""
        return f"Slurm job {self.number} {self.state()}"

    def interrupt(self) -> None:
        """Leave the task alone: it continues."""
        self._left = True

    cancel = interrupt


@lru_cache(maxsize=64)
def _states(job: str, moment: int) -> dict[str, str] | None:
    """Return the states of an array's tasks by index; None if Slurm does not answer.

    All its tasks share one query every _ASK_EVERY seconds.
    """
    told = ask(["squeue", f"--jobs={job}", "--states=all", "--array", "--noheader", "--format=%K %T"])
    return None if told is None else {row[0]: row[1] for line in told.splitlines() if len(row := line.split()) == 2}


@final
@dataclass(frozen=True)
class DetachedRun(JsonDataclass):
    """The content of a run's file."""

    name: str
    submitted: str
    """UTC, ISO 8601."""
    options: JsonObject
    """The options of `harness run`."""
    jobs: Mapping[str, Sequence[Sequence[str]]]
    """The claims of each task, by the number of the array's job."""

    def tasks(self, evidence: Path) -> dict[str, Task]:
        """The task of each claim. Its events are in the folder of evidence that has the run's file."""
        return {
            claim: Task(claim, job, index, evidence / _FOLDER)
            for job, tasks in self.jobs.items()
            for index, claims in enumerate(tasks)
            for claim in claims
        }


def detach(submission: Submission, options: JsonObject, shards: int | None) -> DetachedRun:
    """Submit an array for the claims of each kind of node, and save which they are.

    Args:
        options: of `harness run`, from which `harness attach` makes the request again.
        shards: the largest number of tasks of an array; None for one task a claim.

    Raises:
        OSError: Slurm refuses, or the file cannot be written. The text has Slurm's words.
    """
    name = submission.name
    folder = submission.evidence.absolute() / _FOLDER
    Beneath(submission.evidence.absolute(), _FOLDER).make_folder()
    (folder / ".gitignore").write_text("*\n")
    groups: dict[tuple[str, ...], list[Contract]] = {}
    for contract in submission.request.contracts:
        groups.setdefault((submission.profile(contract).name, *submission.needs(contract)), []).append(contract)
    jobs: dict[str, list[list[str]]] = {}
    for (profile, *needs), contracts in groups.items():
        count = min(len(contracts), shards or len(contracts))
        shares = [contracts[index::count] for index in range(count)]
        minutes = max(sum(map(submission.minutes, share)) for share in shares)
        asked = [f"--job-name={name}", f"--array=0-{count - 1}", f"--time={minutes}", *needs]
        asked += [*(submission.request.slurm or ()), f"--output={folder}/%A_%a.log", f"--chdir={submission.root}"]
        tasks = [[contract.id for contract in share] for share in shares]
        jobs[_sbatch(asked, _script(submission.options(profile), tasks, folder, name))] = tasks
    run = DetachedRun(name, datetime.now(UTC).isoformat(timespec="seconds"), options, jobs)
    half = folder / f"{name}.half"  # another command may read the runs now
    half.write_text(json.dumps(run.to_json(), indent=1))
    half.rename(folder / f"{name}.json")
    return run


def run_files(evidence: Path) -> dict[str, Path]:
    """The files of the runs of an evidence folder by the names of the runs, oldest first."""
    return {path.stem: path for path in sorted((evidence / _FOLDER).glob("*.json"))}


def load_run(path: Path) -> DetachedRun:
    """Read the file of a run.

    Raises:
        RunFileError: it is not the file of the run that its name says.
    """
    try:
        run = DetachedRun.from_json(parsed(path, read(path), _run_document))
    except OSError as error:
        raise RunFileError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise RunFileError(f"{path} is not the file of a run: {error}") from error
    if run.name != path.stem:
        raise RunFileError(f"{path} is not the file of a run: it names the run {run.name!r:.100}")
    if unknown := [job for job in run.jobs if not _JOB.fullmatch(job)]:
        raise RunFileError(f"{path} is not the file of a run: {unknown[0]!r:.100} is not the number of a job")
    return run


def _run_document(content: bytes) -> JsonObject:
    document: JsonObject = DetachedRun.from_json(strictjson.loads(content)).to_json()
    return document


def saved(evidence: Path, name: str | None) -> DetachedRun:
    """The run with a name; without one, the newest.

    Raises:
        UnknownRunError: there is none.
        RunFileError: as `load_run` does.
    """
    files = run_files(evidence)
    if not files:
        raise UnknownRunError(f"no run was detached into {evidence}; harness run --executor slurm --detach does that")
    if name is not None and name not in files:
        raise UnknownRunError(f"there is no run {name}; these were detached: {', '.join(files)}")
    return load_run(files[name or max(files)])


def ended_claims(events: Path) -> dict[str, ClaimEnded]:
    """Return where the bundle of each claim is that a file of events calls ended, by id. The last attempt counts.

    Raises:
        OSError: it is not a regular file, is too large, or is too costly to parse.
    """
    try:
        content = read(events, _MOST_BYTES)
    except FileNotFoundError:
        return {}
    ends = b"\n".join(deque(_lines_with(b"ClaimEnded", content), maxlen=_MOST_ENDS))
    found = parsed(events, ends, _ends) if ends else []
    return {event.id: event for event in map(ClaimEnded.from_json, found)}


def _ends(lines: bytes) -> list[JsonObject]:
    found: dict[str, JsonObject] = {}
    for line in lines.split(b"\n"):
        with suppress(NoEventError):  # the end of a node cut the line short
            event = decode(line.decode(errors="backslashreplace"), {})
            if isinstance(event, ClaimEnded):
                found[event.id] = event.to_json()
    return [*found.values()]


def _lines_with(word: bytes, content: bytes) -> Iterator[bytes]:
    """Yield the lines that contain a word, without looking at each of the others."""
    at = content.find(word)
    while at >= 0:
        end = content.find(b"\n", at)
        end = len(content) if end < 0 else end
        yield content[content.rfind(b"\n", 0, at) + 1 : end]
        at = content.find(word, end)


def verdicts(events: Path, evidence: Path, contracts: Iterable[Contract], name: str) -> dict[str, Verdict]:
    """Return the verdict of each claim that a file of events calls ended, by id: that of its bundle, if it is sound.

    Args:
        name: of the run, which the bundles record.

    Raises:
        OSError: as `ended_claims` does.
    """
    ended, found = ended_claims(events), {}
    for contract in contracts:
        if contract.id in ended and not ended[contract.id].unsealed:
            with suppress(BundleRefused, FileNotFoundError):
                bundle = judged_bundle(evidence, contract, ended[contract.id].run, name)
                found[contract.id] = bundle.finished.record.verdict
    return found


def _script(options: Sequence[str], tasks: Sequence[Sequence[str]], folder: Path, name: str) -> str:
    """Return the shell script of each task. It starts the harness as a step, which gets Slurm's signals.

    After an interruption, the script waits for Slurm to end the task. Slurm does not begin one again that ends itself.
    """
    cases = "\n".join(f"{index}) set -- {shlex.join(claims)} ;;" for index, claims in enumerate(tasks))
    events = f'{shlex.quote(str(folder))}/"${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID".events'
    step = "srun --nodes=1 --ntasks=1 --mpi=none --input=none --open-mode=append"
    return f"""#!/bin/sh
case $SLURM_ARRAY_TASK_ID in
{cases}
esac
events={events}
export {NAME}={name}
{step} --output="$events" {shlex.join(HARNESS)} "$@" {shlex.join(options)} --unless "$events"
status=$?
[ $status -ne {ExitStatus.INTERRUPTED:d} ] || sleep 3600
exit $status
"""


def _sbatch(options: Sequence[str], script: str) -> str:
    done = subprocess.run(
        ["sbatch", "--parsable", "--nodes=1", "--ntasks=1", "--requeue", "--open-mode=append", *options],
        input=script,
        capture_output=True,
        text=True,
        timeout=_SUBMIT_SECONDS,
    )
    if done.returncode:
        raise OSError(done.stderr.strip() or f"sbatch exited with {done.returncode}")
    return done.stdout.strip().partition(";")[0]
