"""Runs that continue without a client, and the nodes that are chosen for claims, on a real Slurm."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.base.vocabulary import ExitStatus
from tests.cli.harness_command import harness
from tests.run.slurm.test_run import CLAIM, await_empty_queue, bundles, queue, read, slurm

OTHER = "F-TOY-SORT-002"
DETACHED = ("--executor", "slurm", "--detach", "--partition", "fleet")


def write(folder: Path, name: str, change: Callable[[dict[str, Any]], object]) -> None:
    """Write a claim that differs from the first one in this way."""
    contract = json.loads((folder / "contracts" / f"{CLAIM}.json").read_text())
    change(contract)
    (folder / "contracts" / f"{name}.json").write_text(json.dumps({**contract, "id": name}))


def awaited(happened: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline, (what, queue())
        time.sleep(0.1)


def test_a_node_of_the_compute_capability(folder: Path) -> None:
    """The driver of that node does not know its simulated GPUs, so the claim is NOT_MEASURED there."""
    requires = {"device": "cuda", "compute_capability": "12.0"}
    write(folder, CLAIM, lambda contract: contract["profiles"]["reduced"].update(requires=requires))
    done = harness(folder, "run", CLAIM, "--executor", "slurm", "--partition", "fleet")
    assert done.returncode == ExitStatus.NOT_MEASURED, done.stdout + done.stderr
    variables = read(bundles(folder)[0], "environment.json")["variables"]
    assert isinstance(variables, dict)
    assert variables["SLURM_JOB_NODELIST"] == "spark"


def test_a_detached_run(folder: Path) -> None:
    """Each claim has a task. `harness attach` prints the output of an ordinary run, and has its exit status."""
    write(folder, OTHER, lambda contract: contract["profiles"]["reduced"]["parameters"].update(how="segfaults"))
    done = harness(folder, "run", CLAIM, OTHER, *DETACHED, "--json", "run.json")
    assert done.returncode == ExitStatus.PASS, done.stdout + done.stderr
    name = done.stdout.partition(":")[0]
    attached = harness(folder, "attach")
    assert attached.returncode == ExitStatus.FAIL, attached.stdout + attached.stderr
    assert "2 claims declared, 2 evaluated: 1 PASS, 1 FAIL" in attached.stdout
    records = json.loads((folder / "run.json").read_text())["records"]
    assert [(record["id"], record["verdict"]) for record in records] == [(CLAIM, "PASS"), (OTHER, "FAIL")]
    assert harness(folder, "runs").stdout.split() == [name, "1", "FAIL,", "1", "PASS"]
    assert harness(folder, "attach", "no-such-run").returncode == ExitStatus.REFUSED
    assert harness(folder, "verify", "evidence").returncode == ExitStatus.PASS
    await_empty_queue()


def test_a_preempted_task_keeps_finished_claims(folder: Path) -> None:
    """Slurm begins the task again. The finished claim does not run again, and the other one does."""
    write(folder, OTHER, lambda contract: contract["profiles"]["reduced"]["parameters"].update(how="hangs"))
    options = ("--shards", "1", "-j", "1", "--slurm-args=--nodelist=spark --exclusive")
    done = harness(folder, "run", CLAIM, OTHER, *DETACHED, *options)
    assert done.returncode == ExitStatus.PASS, done.stdout + done.stderr
    (events,) = awaited_files(folder)
    awaited(lambda: f'"{CLAIM}"' in events.read_text() and "ClaimEnded" in events.read_text(), "the first claim")
    awaited(lambda: f'"TrialStep","id":"{OTHER}"' in events.read_text().replace(" ", ""), "the second claim")
    write(folder, OTHER, lambda contract: None)
    subprocess.run(["srun", "--partition=urgent", "--nodelist=spark", "--exclusive", "true"], check=True, timeout=60)
    attached = harness(folder, "attach")
    assert attached.returncode == ExitStatus.PASS, attached.stdout + attached.stderr
    assert "2 claims declared, 2 evaluated: 2 PASS" in attached.stdout
    assert len(bundles(folder)) == 1
    verdicts = [read(bundle, "record.json")["verdict"] for bundle in bundles(folder, OTHER)]
    assert verdicts == ["NOT_MEASURED", "PASS"]
    assert "Restarts=1" in slurm("scontrol", "show", "job", events.name.partition("_")[0])
    await_empty_queue()


def awaited_files(folder: Path) -> list[Path]:
    """The files of events, as soon as they exist."""
    awaited(lambda: list((folder / "evidence" / ".runs").glob("*.events")), "events")
    return list((folder / "evidence" / ".runs").glob("*.events"))
