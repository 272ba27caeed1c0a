"""`harness run --executor slurm` against a real Slurm: results, refusals, and every way in which a job ends early."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from operator import itemgetter
from pathlib import Path

import psutil
import pytest

from harness.base.vocabulary import ExitStatus
from tests.cli.harness_command import harness, start

CLAIM = "F-TOY-SORT-001"
HANGS = ("-v", "-P", "how=hangs")


def slurm(*command: str) -> str:
    """The output of a Slurm client."""
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def queue() -> list[str]:
    """The jobs that wait, run or complete."""
    return slurm("squeue", "--me", "--noheader", "--format=%i %j %T").splitlines()


def await_empty_queue() -> None:
    """Wait until no job is left."""
    deadline = time.monotonic() + 30
    while queue():
        assert time.monotonic() < deadline, queue()
        time.sleep(0.1)


def job(claim: str = CLAIM) -> str:
    """The number of the claim's job, as soon as the job runs."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for line in queue():
            number, name, state = line.split()
            if (name, state) == (claim, "RUNNING"):
                return number
        time.sleep(0.1)
    raise AssertionError("no job runs")


def bundles(folder: Path, claim: str = CLAIM) -> list[Path]:
    """The sealed bundles of the claim, by age."""
    return sorted((folder / "evidence" / "TOY-1" / claim).glob("[!.]*"))


def read(bundle: Path, name: str) -> dict[str, object]:
    """A file of a bundle."""
    document: dict[str, object] = json.loads((bundle / name).read_text())
    return document


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a run whose subject hangs in a job at its first step."""
    process = start(folder, "run", CLAIM, "--executor", "slurm", *HANGS, *arguments)
    assert process.stdout is not None
    heard = []
    for line in process.stdout:
        heard.append(line)
        if "subject  step 1" in line:
            time.sleep(0.2)
            return process
    raise AssertionError("".join(heard))


def ended(process: subprocess.Popen[str], seconds: float = 60) -> str:
    """Wait for the end of a run; return the rest of its output."""
    output, _ = process.communicate(timeout=seconds)
    return output


def test_a_claim_that_holds(folder: Path) -> None:
    """The events look like a local run's. The bundle is sound and names job, node and partition."""
    done = harness(folder, "run", CLAIM, "--executor", "slurm", "-v", "--junit", "junit.xml")
    assert done.returncode == ExitStatus.PASS, done.stdout + done.stderr
    assert "subject  step 1" in done.stdout
    assert "identity  killed" in done.stdout
    assert "1 claim declared, 1 evaluated: 1 PASS, 0 FAIL, 0 NOT_MEASURED, 0 VOID" in done.stdout
    (bundle,) = bundles(folder)
    variables = read(bundle, "environment.json")["variables"]
    assert isinstance(variables, dict)
    assert variables["SLURM_JOB_ID"].isdigit()
    assert (variables["SLURM_JOB_NAME"], variables["SLURM_JOB_PARTITION"]) == (CLAIM, "day")
    assert variables["SLURM_JOB_NODELIST"] == variables["SLURMD_NODENAME"]
    assert harness(folder, "verify", "evidence").returncode == ExitStatus.PASS
    assert "<testsuite" in (folder / "junit.xml").read_text()
    await_empty_queue()


@pytest.mark.parametrize(("how", "status"), [("segfaults", ExitStatus.FAIL), ("is killed", ExitStatus.NOT_MEASURED)])
def test_exit_statuses(folder: Path, how: str, status: ExitStatus) -> None:
    """The exit statuses are those of a local run, and `--json -` has the record that was sealed on the node."""
    done = harness(folder, "run", CLAIM, "--executor", "slurm", "-P", f"how={how}", "--json", "-")
    assert done.returncode == status, done.stdout + done.stderr
    (told,) = json.loads(done.stdout)["records"]
    sealed = read(bundles(folder)[0], "record.json")
    for one in (told, sealed):  # what was shown begins with what decided the verdict
        one["clauses"].sort(key=itemgetter("id"))
    assert {**told, **sealed} == told


def test_claims_wait_side_by_side(folder: Path) -> None:
    """All jobs are queued at once. The reports have one claim after the other."""
    contract = json.loads((folder / "contracts" / f"{CLAIM}.json").read_text())
    for index in (2, 3):
        name = f"F-TOY-SORT-00{index}"
        (folder / "contracts" / f"{name}.json").write_text(json.dumps({**contract, "id": name}))
    (folder / "contracts" / "F-TOY-BROKEN-001.json").unlink()
    begun = time.monotonic()
    done = harness(folder, "run", "--all", "--executor", "slurm", "-P", "how=slowly", "--slurm-args", "--oversubscribe")
    assert done.returncode == ExitStatus.PASS, done.stdout + done.stderr
    heads = [line for line in done.stdout.splitlines() if line.startswith("F-TOY-SORT")]
    assert [head.split()[0] for head in heads] == [CLAIM, "F-TOY-SORT-002", "F-TOY-SORT-003"]
    assert "3 claims declared, 3 evaluated: 3 PASS" in done.stdout
    assert time.monotonic() - begun < 60


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--partition", "nope"), "nvalid partition"),
        (("--slurm-args", "--gres=gpu:8"), "Requested node configuration is not available"),
        (("--slurm-args", "--no-such-option"), "unrecognized option"),
    ],
)
def test_a_job_that_slurm_refuses(folder: Path, arguments: tuple[str, ...], reason: str) -> None:
    """NOT_MEASURED with Slurm's reason, sealed like any other run."""
    done = harness(folder, "run", CLAIM, "--executor", "slurm", *arguments)
    assert done.returncode == ExitStatus.NOT_MEASURED, done.stdout + done.stderr
    assert reason in done.stdout
    assert reason in str(read(bundles(folder)[0], "record.json")["reason"])
    assert harness(folder, "verify", "evidence").returncode == ExitStatus.PASS


@pytest.mark.parametrize("asked", [(), ("--profile", "full")], ids=str)
def test_a_job_with_a_gpu_does_not_fall_back(folder: Path, asked: tuple[str, ...]) -> None:
    """Slurm gives the job a GPU that the driver does not know:

    NOT_MEASURED, although the reduced profile would pass.
    """
    path = folder / "contracts" / f"{CLAIM}.json"
    contract = json.loads(path.read_text())
    contract["profiles"]["full"] = {**contract["profiles"]["reduced"], "requires": {"device": "cuda", "gpus": 2}}
    path.write_text(json.dumps(contract))
    done = harness(folder, "run", CLAIM, "--executor", "slurm", *asked)
    assert done.returncode == ExitStatus.NOT_MEASURED
    assert read(bundles(folder)[0], "record.json")["profile"] == "full"
    variables = read(bundles(folder)[0], "environment.json")["variables"]
    assert isinstance(variables, dict)
    assert variables["SLURM_GPUS_ON_NODE"] == "2"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_the_job(folder: Path, number: signal.Signals) -> None:
    """The job seals its measurements and leaves the queue. The subject is not blamed; exit status 130."""
    process = started(folder)
    os.killpg(process.pid, number)
    output = ended(process)
    assert process.returncode == ExitStatus.INTERRUPTED, output
    (bundle,) = bundles(folder)
    observation = read(bundle, "observation.json")
    assert observation["measurements"] == {"inversions": 0}
    assert read(bundle, "record.json")["verdict"] == "NOT_MEASURED", output
    await_empty_queue()


def test_ctrl_c_while_the_job_waits(folder: Path) -> None:
    """The job leaves the queue, and nothing was measured."""
    blocker = subprocess.Popen(["srun", "--exclusive", "sleep", "100"], stderr=subprocess.DEVNULL)
    job("sleep")
    try:
        process = start(folder, "run", CLAIM, "--executor", "slurm", "--slurm-args=--exclusive")
        assert process.stdout is not None
        assert "queued and waiting for resources" in process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)
        output = ended(process)
        assert process.returncode == ExitStatus.INTERRUPTED
        assert "interrupted: nothing was measured" in output
        assert not any(CLAIM in line for line in queue())
        assert bundles(folder) == []
    finally:
        slurm("scancel", "--me")
        blocker.wait()
        await_empty_queue()


def test_a_cancelled_job(folder: Path) -> None:
    """Another user calls scancel: measurements are kept, and the run is NOT_MEASURED with Slurm's state."""
    process = started(folder)
    slurm("scancel", job())
    output = ended(process)
    assert process.returncode == ExitStatus.NOT_MEASURED, output
    assert "CANCELLED" in output
    assert read(bundles(folder)[0], "record.json")["verdict"] == "NOT_MEASURED"
    await_empty_queue()


def test_a_job_that_is_killed_outright(folder: Path) -> None:
    """The job could seal nothing, so the client seals NOT_MEASURED with the reason."""
    process = started(folder)
    number = job()
    for other in psutil.process_iter(["cmdline", "cwd"]):
        words = other.info["cmdline"] or []
        if words[:1] == [sys.executable] and "--event-lines" in words and other.info["cwd"] == str(folder):
            other.kill()
    output = ended(process)
    assert process.returncode == ExitStatus.NOT_MEASURED, output
    (bundle,) = bundles(folder)
    assert f"Slurm job {number} FAILED" in str(read(bundle, "record.json")["reason"])
    await_empty_queue()


def test_a_preempted_job(folder: Path) -> None:
    """A job of higher priority takes the node: NOT_MEASURED with that reason."""
    process = started(folder, "--slurm-args=--exclusive")
    slurm("srun", "--partition=urgent", "--nodelist=hopper", "--exclusive", "true")
    output = ended(process)
    assert process.returncode == ExitStatus.NOT_MEASURED, output
    assert "PREEMPTED" in output or "PREEMPTION" in output, output
    await_empty_queue()


def test_a_job_whose_time_is_up(folder: Path) -> None:
    """Slurm's time limit is lowered to the elapsed time: NOT_MEASURED. The controller checks twice a minute."""
    path = folder / "contracts" / f"{CLAIM}.json"
    path.write_text(path.read_text().replace('"seconds": 20', '"seconds": 200'))
    process = started(folder)
    slurm("scontrol", "update", f"JobId={job()}", "EndTime=now")
    output = ended(process)
    assert process.returncode == ExitStatus.NOT_MEASURED, output
    assert "TIMEOUT" in output or "TIME LIMIT" in output, output
    await_empty_queue()


def test_inside_a_job_it_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job cannot start a job."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    done = harness(folder, "run", CLAIM, "--executor", "slurm")
    assert done.returncode == ExitStatus.REFUSED
    assert "leave out --executor slurm" in done.stderr


def test_a_job_signs_with_the_key_that_was_named(folder: Path) -> None:
    """The path of the key also exists on the node."""
    assert harness(folder, "keygen", "ci.key").returncode == ExitStatus.PASS
    done = harness(folder, "run", CLAIM, "--executor", "slurm", "--key", "ci.key")
    assert done.returncode == ExitStatus.PASS, done.stdout + done.stderr
    assert harness(folder, "verify", "evidence", "--trusted-key", "ci.key.pub").returncode == ExitStatus.PASS
    await_empty_queue()
