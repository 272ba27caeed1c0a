"""The submission and the tasks of a detached run. Scripts replace Slurm's clients."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from harness.base.vocabulary import ExitStatus
from harness.contract import Contract
from harness.running.events import ClaimEnded
from harness.running.request import RunRequest
from harness.running.slurm import detached
from harness.running.slurm.detached import DetachedRun, Task, UnknownRunError, detach, ended_claims, run_files, saved
from harness.running.slurm.submission import HARNESS, Submission
from tests.run.slurm.test_job import Clients
from tests.run.slurm.test_submission import claim

SUBMITS = 'number=$(grep -c -- --parsable "$0.calls"); cat > "$0.script$number"; echo "$((number + 40));cluster"'


@pytest.fixture(autouse=True)
def nothing_is_remembered() -> None:
    """Forget Slurm's answers about arrays, which are kept for some seconds."""
    detached._states.cache_clear()


def claims(contract: Contract) -> list[Contract]:
    """Three claims that need a GPU, one of them for longer, and one for any device."""
    long = claim(contract)
    long = replace(long, profiles={"full": replace(long.profiles["full"], seconds=600.0)})
    one = [claim(contract), long, claim(contract), claim(contract, device="any")]
    return [replace(each, id=f"F-DEMO-SORT-{number:03}", target={}) for number, each in enumerate(one)]


@pytest.mark.parametrize(
    ("shards", "tasks", "minutes"),
    [
        (None, [["000"], ["001"], ["002"]], [30, 14]),
        (2, [["000", "002"], ["001"]], [30, 14]),
        (1, [["000", "001", "002"]], [14 + 30 + 14, 14]),
    ],
)
def test_an_array_for_each_kind_of_node(
    contract: Contract,
    clients: Clients,
    tmp_path: Path,
    shards: int | None,
    tasks: list[list[str]],
    minutes: list[int],
) -> None:
    """Each kind of node has an array with the time of its longest task. The run's file has the claims of every task."""
    calls = clients(sbatch=SUBMITS)
    submission = Submission(tmp_path, tmp_path / "evidence", RunRequest(claims(contract), slurm=("--qos=high",)))
    run = detach(submission, {"ids": ["F-*"]}, shards)
    expected = [[f"F-DEMO-SORT-{number}" for number in task] for task in tasks]
    assert run.jobs == {"41": expected, "42": [["F-DEMO-SORT-003"]]}
    folder = tmp_path / "evidence" / ".runs"
    for words, time_, last, gpus in zip(
        calls("sbatch"), minutes, (len(tasks) - 1, 0), (["--gres=gpu:1"], []), strict=True
    ):
        assert words == [
            "--parsable", "--nodes=1", "--ntasks=1", "--requeue", "--open-mode=append", f"--job-name={run.name}",
            f"--array=0-{last}", f"--time={time_}", *gpus, "--qos=high", f"--output={folder}/%A_%a.log",
            f"--chdir={tmp_path}",
        ]  # fmt: skip
    assert saved(tmp_path / "evidence", None) == run
    assert run.options == {"ids": ["F-*"]}
    assert {one: task.number for one, task in run.tasks(tmp_path / "evidence").items()} == {
        name: f"41_{index}" for index, task in enumerate(expected) for name in task
    } | {"F-DEMO-SORT-003": "42_0"}
    assert sorted(path.name for path in folder.iterdir()) == [".gitignore", f"{run.name}.json"]
    assert (folder / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize("status", [0, 1, 3, 130])
def test_what_a_task_runs(contract: Contract, clients: Clients, tmp_path: Path, status: int) -> None:
    """A task runs its claims and writes its events to a file.

    Slurm does not begin a task again that ends itself, so it waits.
    """
    evidence = tmp_path / "my evidence"
    calls = clients(sbatch=SUBMITS, srun=f"exit {status}")
    sleep = tmp_path / "clients" / "sleep"
    sleep.write_text(f'#!/bin/sh\necho "$@" > "{tmp_path}/slept"\n')
    sleep.chmod(0o755)
    detach(Submission(tmp_path, evidence, RunRequest(claims(contract)[:3])), {}, 2)
    script = (tmp_path / "clients" / "sbatch.script1").read_text()
    variables = f"SLURM_ARRAY_JOB_ID=41 SLURM_ARRAY_TASK_ID=0 PATH={tmp_path}/clients:$PATH"
    done = subprocess.run(["sh", "-c", f"{variables} exec sh -s"], input=script, text=True)
    assert done.returncode == status
    events = f"{evidence}/.runs/41_0.events"
    (words,) = calls("srun")
    place = words.index(HARNESS[0])
    assert {f"--output={events}", "--open-mode=append"} <= {*words[:place]}
    assert words[place:] == [
        *HARNESS, "F-DEMO-SORT-000", "F-DEMO-SORT-002", "--profile", "full", "--evidence", str(evidence),
        "--event-lines", "--unless", events,
    ]  # fmt: skip
    assert (tmp_path / "slept").exists() == (status == ExitStatus.INTERRUPTED)


def test_an_array_that_slurm_refuses(contract: Contract, clients: Clients, tmp_path: Path) -> None:
    """The message quotes Slurm, and there is no run."""
    for refuses, text in (("echo 'no such partition' >&2; exit 1", "no such partition"), ("exit 7", "exited with 7")):
        clients(sbatch=refuses)
        with pytest.raises(OSError, match=text):
            detach(Submission(tmp_path, tmp_path, RunRequest(claims(contract))), {}, None)
    assert run_files(tmp_path) == {}


def test_which_run_is_meant(tmp_path: Path) -> None:
    """The run is the newest one, or the one that is named."""
    with pytest.raises(UnknownRunError, match="no run was detached"):
        saved(tmp_path, None)
    folder = tmp_path / ".runs"
    folder.mkdir()
    runs = [DetachedRun(name, "", {}, {}) for name in ("2026-01-02", "2026-01-03", "2026-01-01")]
    for run in runs:
        (folder / f"{run.name}.json").write_text(json.dumps(vars(run)))
    (folder / "2026-01-04.half").write_text("{")
    assert [*run_files(tmp_path)] == ["2026-01-01", "2026-01-02", "2026-01-03"]
    assert saved(tmp_path, None) == runs[1]
    assert saved(tmp_path, "2026-01-02") == runs[0]
    with pytest.raises(UnknownRunError, match=re.escape("2026-01-01, 2026-01-02, 2026-01-03")):
        saved(tmp_path, "2026-01-04")


def ended(claim_: str, run: str) -> str:
    return json.dumps({"event": "ClaimEnded", "id": claim_, "run": run})


def test_where_the_bundles_are(tmp_path: Path) -> None:
    """The bundle is that of the last attempt. A task that has not begun has no file."""
    file = tmp_path / "1_0.events"
    assert ended_claims(file) == {}
    told = {"event": "Remarked", "id": "F-B", "text": "ClaimEnded"}
    lines = [ended("F-A", "one"), ended("F-A", "two"), json.dumps(told), "srun: ClaimEnded"[:4]]
    file.write_bytes("\n".join(lines).encode() + b"\n\xff\n")
    assert ended_claims(file) == {"F-A": ClaimEnded("F-A", "two")}


def test_a_line_that_the_end_of_a_node_cut_short(tmp_path: Path) -> None:
    """Slurm begins the task again, and the next event continues the line. The other bundles are known."""
    file = tmp_path / "1_0.events"
    file.write_text(ended("F-A", "one") + "\n" + ended("F-B", "one")[:40])
    assert set(ended_claims(file)) == {"F-A"}
    file.write_text(file.read_text() + '{"event": "RunStarted"}\n' + ended("F-C", "one") + "\n")
    assert set(ended_claims(file)) == {"F-A", "F-C"}


def squeue(*turns: tuple[str, str]) -> str:
    """A `squeue` that lists several states of task 3, one after the other.

    Before each state, the task writes to its file.
    """
    cases = "\n".join(
        f"{number}) printf '%b' '{text}' >> \"$events\"; echo '3 {state}' ;;"
        for number, (state, text) in enumerate(turns)
    )
    asked = 'number=$(grep -c -- --jobs=7 "$0.calls"); events=$(dirname "$0")/../7_3.events'
    return f'{asked}\necho "4 FAILED"\ncase $((number - 1)) in\n{cases}\n*) echo "3 {turns[-1][0]}" ;;\nesac'


@pytest.mark.parametrize(
    ("queue", "accounting", "state"),
    [
        ("echo '3 RUNNING'; echo '4 FAILED'", "exit 1", "RUNNING"),
        ("true", "echo 'CANCELLED by 0'", "CANCELLED"),
        ("echo '4 FAILED'", "exit 1", "COMPLETED"),
        ("echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", "exit 1", "COMPLETED"),
        ("echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1", "exit 1", "UNKNOWN"),
        ("echo 'slurm_load_jobs error: Socket timed out' >&2; exit 1", "echo FAILED", "FAILED"),
    ],
)
def test_the_state_of_a_task(clients: Clients, tmp_path: Path, queue: str, accounting: str, state: str) -> None:
    """The queue gives the state, else the accounting. If neither knows the task, it is over, unless none answers."""
    calls = clients(squeue=queue, sacct=accounting)
    task = Task("F-A", "7", 3, tmp_path)
    assert (task.state(), task.ended_by()) == (state, f"Slurm job 7_3 {state}")
    assert "--jobs=7" in calls("squeue")[0]
    assert len(calls("squeue")) <= 2
    assert all(words[-1] == "7_3" for words in calls("sacct"))


@pytest.mark.parametrize("end", ["COMPLETED", "CANCELLED"])
def test_what_a_task_tells(clients: Clients, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    """Every complete line of the claim is read once, also the last ones. Reading ends when the task is over."""
    calls = clients(
        squeue=squeue(
            ("PENDING", ""),
            ("CONFIGURING", r'"F-A" 1\n"F-B" 1\n"F-A'),
            ("RUNNING", r'" 2\n'),
            ("SUSPENDED", ""),
            ("REQUEUED", r'"F-B" "F-A-1"\n'),
            ("COMPLETING", r'"F-A" 3\n"F-A" 4\n'),
            (end, r'"F-A" 5\n"F-A" half'),
        )
    )
    monkeypatch.setattr(detached, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(detached, "_ASK_EVERY", 1e-6)
    lines: list[str] = []
    status = Task("F-A", "7", 3, tmp_path).follow(lines.append, lines.append)
    assert lines == [f'"F-A" {number}' for number in range(1, 6)]
    assert status == (ExitStatus.PASS if end == "COMPLETED" else ExitStatus.INTERRUPTED)
    assert len(calls("squeue")) == 7


@pytest.mark.parametrize("leave", ["interrupt", "cancel"])
def test_a_task_that_is_left(clients: Clients, tmp_path: Path, leave: str) -> None:
    """The task continues in Slurm. The harness no longer follows it."""
    calls = clients(squeue=squeue(("RUNNING", "")))
    task = Task("F-A", "7", 3, tmp_path)
    getattr(task, leave)()
    assert task.follow(print, print) == ExitStatus.INTERRUPTED
    assert calls("scancel") == []
