"""A job of Slurm. Scripts replace Slurm's clients."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.tools.slurm.job import Job, ask

Clients = Callable[..., Callable[[str], list[list[str]]]]


def queued(*states: str, preempted: str = "N/A") -> str:
    """A `squeue` that lists a job of this session in one state after the other, beside older and other jobs."""
    turns = "\n".join(f"{number}) state={state} ;;" for number, state in enumerate(states))
    return f"""
number=$(grep -c -- --me "$0.calls"); number=$((number - 1))
case $number in
{turns}
*) state={states[-1]} ;;
esac
session=$(cat "$(dirname "$0")/session")
echo "9 $session CANCELLED N/A"
echo "12 $session $state {preempted}"
echo "11 $session FAILED N/A"
echo "99 1 OUT_OF_MEMORY N/A"
"""


TELLS = 'echo $$ > "$(dirname "$0")/session"\n'
"""The beginning of an `srun` script: the session is its own process."""


def followed(job: Job) -> tuple[int, list[str], list[str]]:
    """The exit status of a job, the output of its command, and Slurm's messages."""
    lines, words = list[str](), list[str]()
    return job.follow(lines.append, words.append), lines, words


def test_what_a_job_says(clients: Clients, tmp_path: Path) -> None:
    """The output of the command and Slurm's messages are separate. Slurm's options come before the command."""
    calls = clients(srun=TELLS + "echo one; echo two; echo word >&2; exit 3", squeue=queued("FAILED"))
    job = Job(["--time=7"], ["work", "hard"], tmp_path)
    assert followed(job) == (3, ["one\n", "two\n"], ["word"])
    (words,) = calls("srun")
    assert words[-3:] == ["--time=7", "work", "hard"]
    assert f"--chdir={tmp_path}" in words
    assert job.ended_by() == "Slurm job 12 FAILED"  # the newest of this session


def test_a_job_does_not_get_the_signals_of_the_terminal(clients: Clients, tmp_path: Path) -> None:
    """Ctrl-C reaches only the harness, which then asks the job to end."""
    clients(srun="ps -o sid= -p $$; echo $$")
    _, (session, process), _ = followed(Job([], ["work"], tmp_path))
    assert int(session) == int(process)


def test_why_a_job_ended(clients: Clients, tmp_path: Path) -> None:
    """The reason has each of Slurm's messages once, without those that say nothing and without the command's output."""
    says = "\n".join(
        f"echo '{line}' >&2"
        for line in (
            "srun: job 12 queued and waiting for resources",
            "srun: error: node hopper: disk failure",
            "srun: error: node hopper: disk failure",
            "srun: Force Terminated StepId=12.0",
            "srun: error: hopper: task 0: Exited with exit code 1",
            "slurmstepd-hopper: error: *** JOB 12 ON hopper CANCELLED ***",
            "Traceback of the command",
        )
    )
    clients(srun=TELLS + says + "\nexit 1", squeue=queued("CANCELLED"))
    job = Job([], ["work"], tmp_path)
    assert followed(job)[0] == 1
    assert job.ended_by() == (
        "Slurm job 12 CANCELLED: job 12 queued and waiting for resources; node hopper: disk failure; "
        "*** JOB 12 ON hopper CANCELLED ***"
    )


@pytest.mark.parametrize(("when", "state"), [("2026-11-23T10:00:00", "PREEMPTED"), ("N/A", "CANCELLED")])
def test_a_job_that_ends_within_its_grace_time(clients: Clients, tmp_path: Path, when: str, state: str) -> None:
    """If Slurm says when it preempted the job, the reason says so, although the state is another one."""
    clients(srun=TELLS + "exit 1", squeue=queued("CANCELLED", preempted=when))
    job = Job([], ["work"], tmp_path)
    followed(job)
    assert job.ended_by() == f"Slurm job 12 {state}"


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETING"])
def test_slurm_tidies_up_before_it_says(clients: Clients, tmp_path: Path, state: str) -> None:
    """The harness asks for the state of a job that did not end well until the state is final.

    It does not ask for other jobs.
    """
    calls = clients(srun=TELLS + "exit 1", squeue=queued(state, state, "TIMEOUT"))
    job = Job([], ["work"], tmp_path)
    followed(job)
    assert job.ended_by() == "Slurm job 12 TIMEOUT"
    assert len(calls("squeue")) == 3
    calls = clients(srun=TELLS, squeue=queued(state))
    assert followed(Job([], ["work"], tmp_path))[0] == 0
    assert len(calls("squeue")) == 4


@pytest.mark.parametrize("line", ["srun: job 5 queued", "srun: error: StepId=5.0 aborted", "srun: error: *** STEP 5.0"])
def test_the_number_that_srun_tells(clients: Clients, tmp_path: Path, line: str) -> None:
    """If the queue no longer lists the job, its number is the one that srun printed."""
    clients(srun=f"echo '{line}' >&2; exit 1")
    job = Job([], ["work"], tmp_path)
    followed(job)
    assert job.number == "5"


WAITS = TELLS + "echo 'srun: job 12 queued and waiting for resources' >&2\nexec sleep 30"


@pytest.mark.parametrize(
    ("states", "asked"),
    [
        (["RUNNING"], ["--signal=TERM", "12"]),
        (["PENDING"], ["12"]),
        (["PENDING", "RUNNING"], ["--signal=TERM", "12"]),
    ],
    ids=str,
)
def test_a_job_is_asked_to_end(clients: Clients, tmp_path: Path, states: list[str], asked: list[str]) -> None:
    """A running job gets a signal, so that it can seal, even if the last query found it waiting.

    A waiting job is cancelled.
    """
    calls = clients(srun=WAITS, squeue=queued(*states))
    job = Job([], ["work"], tmp_path)
    while not (tmp_path / "clients" / "session").exists():
        time.sleep(0.01)
    for _ in states[1:]:
        assert job.number == "12"
    job.interrupt()
    assert calls("scancel") == [asked]
    job._process.kill()
    job._process.communicate()


def test_a_job_whose_number_srun_told_is_asked_to_end(clients: Clients, tmp_path: Path) -> None:
    """The job was waiting at the last query, and runs now, so it gets a signal."""
    calls = clients(srun=WAITS, squeue=queued("RUNNING"))
    job = Job([], ["work"], tmp_path)
    assert job._process.stderr is not None
    lines = iter(job._process.stderr)
    job._process.stderr = iter([next(lines)])  # type: ignore[assignment]
    job._listen(lambda word: None)
    job.interrupt()
    assert calls("scancel") == [["--signal=TERM", "12"]]
    job._process.kill()


def test_a_job_that_slurm_has_not_accepted_is_withdrawn(clients: Clients, tmp_path: Path) -> None:
    """The harness ends its `srun`, and cancels nothing."""
    calls = clients(srun="exec sleep 30")
    job = Job([], ["work"], tmp_path)
    job.interrupt()
    assert followed(job)[0] != 0
    assert calls("scancel") == []
    assert job.ended_by() == "Slurm"


def test_a_job_that_the_queue_does_not_list_is_cancelled(clients: Clients, tmp_path: Path) -> None:
    """The number is the one that srun printed."""
    calls = clients(srun="echo 'srun: job 5 queued' >&2; exit 1")
    job = Job([], ["work"], tmp_path)
    followed(job)
    job.cancel()
    assert calls("scancel") == [["5"]]


def test_a_client_that_fails_says_nothing(clients: Clients) -> None:
    """If a client fails or does not exist, the state is unknown."""
    clients(squeue="echo partly; exit 1")
    assert ask(["no-such-client"]) is None
    assert ask(["squeue"]) is None
