"""What a watcher makes of the records of the CUDA driver."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.authoring.faults import NotMeasured
from harness.tools.watch import machine_reading
from harness.tools.watch.checks import CHECKS, state_of
from harness.tools.watch.driver_reading import DriverFollower, recorded_by
from harness.tools.watch.facts import FACTS, Fact, facts_in
from harness.tools.watch.given import Given
from harness.tools.watch.job_state import JobState
from tests.cli.harness_command import environment
from tests.tools.recorder.fakes import Fakes
from tests.tools.watch.jobs import bundles, job_line, project_of, watch_words

ROOT = Path(__file__).parents[3]

START = '{"event":"start","at":1.0,"pid":7}\n'
READY = '{"event":"ready","at":1.1,"callbacks":30,"modules":true,"jit":true}\n'
PTX = '{"event":"module","at":2.0,"call":"cuModuleLoadData","form":"ptx","needs_jit":true,"ptx":[70]}\n'
CUBIN = PTX.replace('"ptx","needs_jit":true', '"machine_code","needs_jit":false')
LAUNCHED = '{"event":"totals","at":3.0,"final":false,"launches":8,"modules":1,"ptx":1,"jit":1,"refused":0,"calls":{}}\n'
REFUSED = '{"event":"refused","at":4.0,"call":"cuMemAlloc_v2","result":2,"bytes":1099511627776}\n'


def test_records_are_followed(tmp_path: Path) -> None:
    """Each line counts once, when it has its end; a watcher that begins anew reads on."""
    job, reader = JobState(Given(), CHECKS), DriverFollower(tmp_path)

    def read(more: str) -> list[dict[str, Any]]:
        with (tmp_path / "7-1.jsonl").open("a") as file:
            file.write(more)
        found = [*reader.read(job, 1.0)]
        for fact in found:
            job.apply(fact)
        return [
            {name: value for name, value in fact.items() if name not in ("fact", "at", "file", "offset")}
            for fact in found
        ]

    assert read(START + READY + PTX) == [
        {"started": 1, "ready": 1, "images": ["cuModuleLoadData: ptx with PTX for sm_70"], "loaded": 1}
    ]
    assert read(CUBIN + CUBIN + LAUNCHED[:20]) == [{"loaded": 2}]
    assert read(LAUNCHED[20:]) == [{"launches": 8}]
    assert read(REFUSED) == [{"refused": ["cuMemAlloc_v2: 1099511627776 bytes"]}]
    assert read(REFUSED.replace("cuMemAlloc_v2", "cuMemHostAlloc")) == [{}]
    assert read("") == []
    assert read("garbled}\n")[0]["unseen"][0].startswith("a damaged line")
    assert (job.driver["started"], job.launched, job.failed) == (1, 8, "")


def watched(given: Given, *facts: Fact, cpu: float = 90.0, seen: bool | None = None, samples: int = 2) -> list[str]:
    """The checks that refute a recorded job of ten steps with these facts of the driver, in words of the last one."""
    found: list[Fact] = [{"fact": "job", "at": 0.0, "recorder": "records", "is_ours": True}]
    for step in range(1, 11):
        values = {"step": str(step), "loss": str(5 - step / 10)}
        found.append({"fact": "output", "at": float(step), "file": "log", "offset": step,
                      "events": [["step", values, ""]]})  # fmt: skip
    usage = [{"fact": "usage", "at": at, "cpu_percent": cpu, "gpu_seen": seen} for at in (11.0, 12.0)[:samples]]
    more = [{"fact": "driver", "at": 10.5, "file": "7.jsonl", "offset": 9, **fact} for fact in facts]
    return [refutation.check for refutation in state_of([*found, *more, *usage], given).refutations]


@pytest.mark.parametrize(
    ("facts", "cpu", "seen", "refuted"),
    [
        ([], 90.0, False, ["gpu_unused"]),
        ([], 90.0, None, []),
        ([], 1.0, False, []),
        ([], 90.0, True, []),
        ([{"started": 1, "ready": 1}], 90.0, True, ["gpu_unused"]),
        ([{"started": 1, "unseen": ["no CUPTI"]}], 90.0, None, []),
        ([{"started": 1, "ready": 1, "launches": 4}], 90.0, None, []),
        ([{"started": 1, "ready": 1, "launches": 4}], 90.0, False, []),
    ],
)
def test_a_silent_fallback(facts: list[Fact], cpu: float, seen: bool | None, refuted: list[str]) -> None:
    """A job that computes and launches no kernel runs on the CPU. A recorder that is blind refutes nothing.

    Nor does one that was not loaded, as under another tool or in a container, nor a single sample.
    """
    assert watched(Given(device="cuda"), *facts, cpu=cpu, seen=seen, samples=1) == []
    assert watched(Given(device="cuda"), *facts, cpu=cpu, seen=seen) == refuted
    assert watched(Given(device="cpu"), *facts, cpu=cpu, seen=seen) == []


def test_no_compilation_was_asked_for() -> None:
    """The first image that has to be compiled refutes, if jit=none."""
    image = {"started": 1, "ready": 1, "launches": 4, "images": ["cuModuleLoadData: ptx"], "loaded": 1}
    assert watched(Given(jit="none"), image) == ["kernels_compiled"]
    assert watched(Given(), image) == []


@pytest.mark.parametrize("key", ["loaded", "refused"])
def test_what_ends_or_is_rare_is_no_waste(key: str) -> None:
    """Kernels of a first evaluation, those of new lengths of batches. One window without any takes two away."""
    given = replace(Given(), window=5)
    most, begin = {"loaded": (20, 11), "refused": (10, 6)}[key]

    def happening(at: list[int], key: str = key, first: int = 1) -> int:
        job = JobState(given, CHECKS)
        job.apply({"fact": "job", "at": 0.0, "recorder": "records"})
        for step in range(first, first + 300):
            job.apply({"fact": "output", "at": float(step), "file": "log", "offset": step,
                       "events": [["step", {"step": str(step)}, ""]]})  # fmt: skip
            if step in at:
                job.apply({"fact": "driver", "at": float(step), "file": "1", "offset": step, key: ["a call"]})
        return len(job.refutations)

    each = [begin + 5 * number for number in range(most)]
    assert happening([*range(1, begin), *range(20, 24)]) == 0
    assert happening([*range(20, 301, 10)]) == 0
    assert happening(each[:-1]) == 0
    assert happening(each) == 1
    longer = [begin + 5 * number for number in range(most + 3) if number != 4]
    assert happening(longer[:-1]) == 0
    assert happening(longer) == 1
    assert happening(each, "images") == 0
    assert happening([4000 - 1 + at for at in each], first=4000) == 1
    assert happening([4000 - 6 + at for at in each], first=4000) == 0  # the warm-up of a run that resumed


def test_nothing_is_judged_of_a_driver_that_was_not_seen() -> None:
    """Neither before the recorder saw a process, nor if it does not see all."""
    steps: list[Fact] = [
        {
            "fact": "output",
            "at": float(step),
            "file": "log",
            "offset": step,
            "events": [["step", {"step": str(step)}, ""]],
        }
        for step in range(1, 101)
    ]
    samples: list[tuple[Fact, bool]] = [
        ({"unseen": ["a damaged line"]}, False),
        ({"started": 1}, False),
        ({"started": 1, "ready": 1, "unseen": ["no CUPTI"]}, False),
        ({"started": 1, "ready": 1}, True),
    ]
    for seen, is_judged in samples:
        facts: list[Fact] = [{"fact": "job", "at": 0.0, "recorder": "records"}]
        facts.append({"fact": "driver", "at": 0.5, "file": "1", "offset": 9, **seen})
        judged = {check.name for check in state_of([*facts, *steps], Given()).checks if check.judged}
        assert ({"kernels_compiled", "allocations_refused"} <= judged) is is_judged
        assert judged.isdisjoint({"kernels_compiled", "allocations_refused"}) is not is_judged


def test_a_process_says_where_its_records_are(tmp_path: Path) -> None:
    """One that runs already; else the reason is given."""
    words = [sys.executable, "-c", "print(flush=True); input()"]
    for variables in ({"HARNESS_RECORDER_DIR": str(tmp_path)}, {}):
        job = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **variables})
        assert job.stdout is not None
        job.stdout.readline()  # it runs
        try:
            if variables:
                assert recorded_by(job.pid) == tmp_path
            else:
                with pytest.raises(NotMeasured, match="started without it"):
                    recorded_by(job.pid)
        finally:
            job.communicate(b"\n")
    with pytest.raises(NotMeasured, match="cannot be read"):
        recorded_by(job.pid)


def test_a_job_is_started_with_the_recorder(tmp_path: Path) -> None:
    """On a fake driver, the first PTX refutes the job. Where it cannot be recorded, the watcher says so."""
    root, fakes = project_of(tmp_path / "project"), Fakes(tmp_path)
    (root / "image").write_bytes(b".version 8.0\n.target sm_70\n")
    engine = [sys.executable, str(ROOT / "tests" / "tools" / "recorder" / "fake_engine.py")]
    line = " ".join(job_line(400, 0, "none", root / "out", 0.05))
    job = ["sh", "-c", f"{' '.join(engine)} --image image; exec {line}"]
    words = watch_words(root, "--record", "--on-refute", "kill", "-P", "jit=none", "-P", "device=null", steps=400)
    done = subprocess.run([*words, "--", *job], cwd=root, env={**environment(root), **fakes.variables},
                          capture_output=True, text=True, timeout=120)  # fmt: skip
    facts = facts_in(root / "state" / FACTS)
    assert [fact["check"] for fact in facts if fact["fact"] == "refuted"] == ["kernels_compiled"], done.stderr
    assert [fact["ends"] for fact in facts if fact["fact"] == "acted"] == [True]
    [bundle] = bundles(root / "evidence")
    assert "kernels_compiled" in bundle.observation.measurements
    other = project_of(tmp_path / "other")
    words = watch_words(other, "--record", "-P", "jit=none", "-P", "device=null", steps=5)
    taken = {**environment(other), "CUDA_INJECTION64_PATH": "/opt/profiler.so"}
    done = subprocess.run([*words, "--", *job_line(5, 0, "none", other / "out")], cwd=other, env=taken,
                          capture_output=True, text=True, timeout=120)  # fmt: skip
    assert "the recorder of the CUDA driver is absent: CUDA_INJECTION64_PATH is taken" in done.stderr
    [bundle] = bundles(other / "evidence")
    assert "kernels_compiled" not in bundle.observation.measurements


@pytest.mark.parametrize(("gpus", "memory"), [(1, 7), (2, None)])
def test_memory_of_the_only_process(monkeypatch: pytest.MonkeyPatch, gpus: int, memory: int | None) -> None:
    """Where ids of processes mean nothing, it is the job's own on a single GPU. Of several, one may be another's."""
    probe = SimpleNamespace(
        read=lambda owns: ({"gpu_utilisation_percent": 30}, {}), residency=lambda: SimpleNamespace(seen=None)
    )
    monkeypatch.setattr(machine_reading, "GpuProbe", lambda gpu: probe)
    monkeypatch.setattr(machine_reading, "_of_only_process", lambda gpu: 7)
    host: Any = SimpleNamespace(gpus=[SimpleNamespace(memory_bytes=80)] * gpus)
    sample = machine_reading.MachineReader(host, os.getpid(), None, 0).sample(1.0)
    assert (sample.get("gpu_only_bytes"), sample.get("gpu_limit_bytes")) == (memory, memory and 80)
    assert sample["gpu_utilisation_percent"] == 30
