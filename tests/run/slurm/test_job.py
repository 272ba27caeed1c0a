"""A job of Slurm, by clients that answer what a test says."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.running.slurm.job import Job, ask

Clients = Callable[..., Callable[[str], list[list[str]]]]


def queued(*states: str, preempted: str = "N/A") -> str:
    """A `squeue` that lists a job of this session in one state after the other, and older and other jobs."""
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
"""The beginning of an `srun`: the session is its own process."""


def followed(job: Job) -> tuple[int, list[str], list[str]]:
    """The exit status of a job, what its command prints, and the rest."""
    lines, words = list[str](), list[str]()
    return job.follow(lines.append, words.append), lines, words


def test_what_a_job_says(clients: Clients, tmp_path: Path) -> None:
    """The command's output and Slurm's messages are kept apart. The options come before the command."""
    calls = clients(srun=TELLS + "echo one; echo two; echo word >&2; exit 3", squeue=queued("FAILED"))
    job = Job(["--time=7"], ["work", "hard"], tmp_path)
    assert followed(job) == (3, ["one\n", "two\n"], ["word"])
    (words,) = calls("srun")
    assert words[-3:] == ["--time=7", "work", "hard"]
    assert f"--chdir={tmp_path}" in words
    assert job.ended_by() == "Slurm job 12 FAILED"  # the newest of this session


def test_a_job_does_not_get_the_signals_of_the_terminal(clients: Clients, tmp_path: Path) -> None:
    """Ctrl-C reaches the harness alone, which then asks the job to end."""
    clients(srun="ps -o sid= -p $$; echo $$")
    _, (session, process), _ = followed(Job([], ["work"], tmp_path))
    assert int(session) == int(process)


def test_why_a_job_ended(clients: Clients, tmp_path: Path) -> None:
    """Each of Slurm's words once, without those that say nothing, and without those of the command."""
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
    """Slurm states when it was preempted, and calls it otherwise."""
    clients(srun=TELLS + "exit 1", squeue=queued("CANCELLED", preempted=when))
    job = Job([], ["work"], tmp_path)
    followed(job)
    assert job.ended_by() == f"Slurm job 12 {state}"


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETING"])
def test_slurm_tidies_up_before_it_says(clients: Clients, tmp_path: Path, state: str) -> None:
    """The state of a job that did not end well is asked again until it is final; that of another is not."""
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
    """If the queue does not list the job any more."""
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
    """One that runs can seal what it measured, also if it waited when it was last seen. Another leaves the queue."""
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
    """The job was in the queue at the last query, and runs now."""
    calls = clients(srun=WAITS, squeue=queued("RUNNING"))
    job = Job([], ["work"], tmp_path)
    assert job._process.stderr is not None
    told = iter(job._process.stderr)
    job._process.stderr = iter([next(told)])  # type: ignore[assignment]
    job._listen(lambda word: None)
    job.interrupt()
    assert calls("scancel") == [["--signal=TERM", "12"]]
    job._process.kill()


def test_a_job_that_slurm_has_not_accepted_is_withdrawn(clients: Clients, tmp_path: Path) -> None:
    """Its `srun` ends, and nothing is cancelled."""
    calls = clients(srun="exec sleep 30")
    job = Job([], ["work"], tmp_path)
    job.interrupt()
    assert followed(job)[0] != 0
    assert calls("scancel") == []
    assert job.ended_by() == "Slurm"


def test_a_job_that_the_queue_does_not_list_is_cancelled(clients: Clients, tmp_path: Path) -> None:
    """By the number that srun told."""
    calls = clients(srun="echo 'srun: job 5 queued' >&2; exit 1")
    job = Job([], ["work"], tmp_path)
    followed(job)
    job.cancel()
    assert calls("scancel") == [["5"]]


def test_a_client_that_fails_says_nothing(clients: Clients) -> None:
    """Or one that is not there."""
    clients(squeue="echo partly; exit 1")
    assert ask(["no-such-client"]) == ""
    assert ask(["squeue"]) == "partly\n"
