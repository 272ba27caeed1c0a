"""A small job, its trainer's file, and the project that watches it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from harness.evidence.bundle import Bundle
from harness.evidence.verification import verify_all
from tests.cli.harness_command import COMMAND
from tests.contracts import document, write_project

__all__ = ["TRAINER", "bundles", "job_line", "project_of", "watch_words"]

JOB = """
import json, struct, sys, time
from pathlib import Path

steps, every, defect, pace = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
out = Path(sys.argv[5])
out.mkdir(parents=True, exist_ok=True)
print("device: cpu", flush=True)
for step in range(1, steps + 1):
    while step == 4 and defect == "held" and not Path("go").exists():
        time.sleep(0.01)
    time.sleep(pace)
    loss = 4 / step**0.5 + 0.01 * (step % 3)
    print(f"step {step}/{steps} loss {'nan' if defect in ('nan', 'held') and step >= 5 else loss}", flush=True)
    if every and step % every == 0:
        content = struct.pack("<4f", *(0.1 * step + one for one in range(4)))
        head = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
        path = out / f"step-{step}.safetensors"
        part = path.with_suffix(".part")
        part.write_bytes(b"" if defect == "empty" else struct.pack("<Q", len(head)) + head + content)
        part.rename(path)
print(f"made {steps} steps", flush=True)
sys.exit(3 if defect == "crash" else 0)
"""
TRAINER = r"""
name = "toy"
[parameters]
pace = 0.01
[command]
line = ["{python}", "{here}/job.py", "{steps}", "{checkpoint_every}", "none", "{pace}", "{output}"]
[log]
files = ["*.log"]
[[log.line]]
event = "ran"
pattern = '^device: (?P<device>\w+)'
[[log.line]]
event = "step"
pattern = '^step (?P<step>\d+)/(?P<total>\d+) loss (?P<loss>\S+)'
[[log.line]]
event = "summary"
pattern = '^made (?P<steps>\d+) steps'
[files]
export = "{output}/model.safetensors"
checkpoints = "{output}/step-*.safetensors"
step = '^step-(?P<step>\d+)\.safetensors$'
"""


def project_of(root: Path, settings: str = "") -> Path:
    """A project with the job and its trainer's file. The claim of its contract can be watched, by these settings."""
    claim = document()
    claim["observation"]["properties"]["unreadable"] = {"type": "array", "maxItems": 0}
    write_project(root, claim)
    (root / "job.py").write_text(JOB)
    (root / "toy.toml").write_text(TRAINER)
    with (root / "pyproject.toml").open("a") as file:
        file.write(settings)
    return root


def job_line(steps: int, every: int, defect: str, out: Path, pace: float = 0.01) -> list[str]:
    """The command line of the job."""
    return [sys.executable, "job.py", str(steps), str(every), defect, str(pace), str(out)]


def watch_words(root: Path, *options: str, steps: int = 60, every: int = 20) -> list[str]:
    """The command line of a watcher, up to the job."""
    given: Mapping[str, object] = {
        "steps": steps, "checkpoint_every": every, "device": "cpu", "settle_seconds": 0.05, "late_seconds": 60.0,
    }  # fmt: skip
    words = [*COMMAND, "watch", "toy.toml", "--state", str(root / "state"), "--every", "0.1s"]
    return [*words, *(word for name, value in given.items() for word in ("-P", f"{name}={value}")), *options]


def bundles(evidence: Path) -> list[Bundle]:
    """The bundles below a folder, all of which are sound."""
    places = sorted(path.parent for path in evidence.glob("*/*/*/record.json"))
    assert all(bundle.sound for bundle in verify_all(places))
    return [Bundle(place) for place in places]
