"""`harness attach` and `harness runs` with hostile run files and files of events."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.base.vocabulary import ExitStatus
from harness.cli.run_options import RunOptions
from tests.hostile.things import DOCUMENTS, THINGS, put
from tests.hostile.world import CLAIM, RUN, Case, World, cases, ended, write_run


def _options(**changes: Any) -> Callable[[World], None]:
    def change(world: World) -> None:
        given = RunOptions(ids=(CLAIM,)).to_json()
        write_run(world, options={**given, **changes})

    return change


def _keys(**changes: Any) -> Callable[[World], None]:
    return lambda world: write_run(world, **changes)


RUN_FILES: dict[str, Callable[[World], Any]] = {
    **{f"run file: {name}": lambda world, make=make: put(world.run_file, make) for name, make in THINGS.items()},
    **{f"run file: {name}": lambda world, make=make: put(world.run_file, make) for name, make in DOCUMENTS.items()},
    "another name": _keys(name="2026-01-01T000000Z-bbbbbb"),
    "a name that leads out": _keys(name="../../outside/file"),
    "an option as the number of a job": _keys(jobs={"--help": [[CLAIM]]}),
    "a path as the number of a job": _keys(jobs={"/etc/passwd": [[CLAIM]]}),
    "jobs that are a list": _keys(jobs=[[CLAIM]]),
    "jobs of numbers": _keys(jobs={"7": [[1]]}),
    "options that are a list": _keys(options=[1]),
    "another folder of events": _keys(folder="/dev"),
    "an unknown option": _options(rm="x"),
    "an option of another type": _options(jobs="many"),
    "no such profile": _options(profile="everything"),
    "no such device": _options(device="tpu"),
    "a negative seed": _options(seed=-1),
    "a report outside": _options(junit="../outside/file"),
    "JSON outside": _options(json_file="../outside/file"),
    "a subject outside": _options(subject="file:/proc/self/mem"),
    "a subject that is a device": _options(subject="command:/dev/zero"),
    "a key that is a device": _options(key="/dev/zero"),
    "a claim that leads out": _keys(jobs={"7": [["../../outside/file"]]}),
}
"""None of them can be followed."""


def test_a_run_file_of_small_objects_costs_this_process_little(tmp_path: Path) -> None:
    """15 MB of them would be a gigabyte of objects, which a fork of the command makes and gives up."""
    path = tmp_path / "run.json"
    path.write_text('{"name": "run", "submitted": "", "jobs": {}, "options": {"a": [' + "{}," * 5_000_000 + "{}]}}")
    script = """if True:
        import pathlib, resource, sys
        from harness.running.slurm.detached import RunFileError, load_run
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            load_run(pathlib.Path(sys.argv[1]))
        except RunFileError as error:
            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, error)
    """
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, timeout=60)
    grown, _, refusal = done.stdout.partition(" ")
    assert "too costly to parse" in refusal, done.stderr
    assert int(grown) < 100 << 10  # KiB


HARMLESS: dict[str, Callable[[World], Any]] = {
    "evidence elsewhere": _options(evidence="/"),
    "a claim in a hundred thousand tasks": _keys(jobs={"7": [[CLAIM]] * 100_000}),
    "an executor": _options(executor="slurm", slurm_args="--help", detach=True),
}


def _event(*lines: bytes | dict[str, Any] | Any) -> Callable[[World], None]:
    def change(world: World) -> None:
        told = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
        world.events.write_bytes(b"".join(line + b"\n" for line in told))

    return change


_FINISHED = {"event": "ClaimFinished", "record": {"id": CLAIM, "verdict": "PASS", "proven": True}, "bundle": None}
EVENTS: dict[str, Callable[[World], Any]] = {
    **{f"events: {name}": lambda world, make=make: put(world.events, make) for name, make in THINGS.items()},
    **{f"events: {name}": lambda world, make=make: put(world.events, make) for name, make in DOCUMENTS.items()},
    "a verdict in the events": _event(_FINISHED),
    "a verdict in the end": _event(ended(verdict="PASS")),
    "a run that leads out": _event(ended("../../../outside")),
    "a run that is the folder": _event(ended(".")),
    "a run of no characters": _event(ended("")),
    "a run with a NUL": _event(ended("a\0b")),
    "a run of a million characters": _event(ended("x" * 1_000_000)),
    "a run that is a list": _event(ended(["x"])),
    "a reason of another type": _event(ended(unsealed={"PASS": True})),
    "an unknown event": _event({"event": "RunPassed", "id": CLAIM}),
    "an event that is a list": _event([ended()]),
    "the name of an event that is an object": _event({**ended(), "event": {"ClaimEnded": 1}}),
    "two events in a line": _event(json.dumps(ended()).encode() * 2),
    "a plan of wrong types": _event({"event": "ClaimPlanned", "contract": CLAIM, "parameters": 3, "profile": []}),
    "steps that are no numbers": _event({"event": "TrialStep", "id": CLAIM, "trial": "x", "step": "x", "values": 1}),
    "60 MB of line ends": lambda world: world.events.write_bytes(b"\n" * (60 << 20)),
    "a hundred thousand ends": lambda world: world.events.write_bytes(
        (json.dumps(ended("x")).encode() + b"\n") * 100_000
    ),
    "escapes in a phase": _event({"event": "TrialPhase", "id": CLAIM, "trial": "\x1b[2J", "phase": "\x1b]0;x\7"}),
}
"""None of them says where a sound bundle of this run is."""


@cases(RUN_FILES, every=24)
def test_run_files_that_are_refused(case: Case, quick: bool, world: World) -> None:
    """Both commands name the file and go on with others."""
    world.run_file.with_name("2025-01-01T000000Z-cccccc.json").write_text(
        world.run_file.read_text().replace(RUN, "2025-01-01T000000Z-cccccc")
    )
    case.change(world)
    done = world.run("attach", RUN)
    assert done.returncode not in (ExitStatus.PASS, ExitStatus.FAIL), done.stdout
    assert "1 PASS" not in done.stdout
    listed = world.run("runs")
    assert "2025-01-01T000000Z-cccccc" in listed.stdout
    assert listed.returncode in (ExitStatus.PASS, ExitStatus.REFUSED)
    assert str(world.run_file.name) in listed.stderr or listed.returncode == ExitStatus.PASS


@cases(HARMLESS, every=4)
def test_run_files_that_name_other_places(case: Case, quick: bool, world: World) -> None:
    """The bundle decides, and nothing is written elsewhere."""
    case.change(world)
    world.run("attach")
    world.run("runs")


@cases(EVENTS, every=24)
def test_events(case: Case, quick: bool, world: World) -> None:
    """Without the bundle of the run there is no verdict."""
    case.change(world)
    for name in ("attach", "runs"):
        done = world.run(name)
        assert name == "runs" or done.returncode != ExitStatus.PASS, done.stdout
        assert "1 PASS" not in done.stdout
    assert Path(world.passed).is_dir()
