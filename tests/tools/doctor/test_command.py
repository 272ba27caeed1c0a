"""`harness doctor`, run as a command on recorded machines."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.contracts import put
from tests.recorded import STAND_IN

CONTRACT: dict[str, Any] = {
    "id": "F-SAMPLE-001",
    "issue": "SAMPLE-1",
    "spec": "SPEC-SAMPLE-001",
    "title": "A sample",
    "claim": "It works.",
    "sources": [{"uri": "https://example.org"}],
    "falsifier": "sample:falsify",
    "subject": "sample:Subject",
    "target": {"compute_capability": "12.1", "device": "NVIDIA GB10"},
    "profiles": {
        "full": {
            "requires": {"device": "cuda", "compute_capability": "9.0"},
            "parameters": {},
            "limits": {"seconds": 9},
        },
        "reduced": {"requires": {"device": "any"}, "parameters": {}, "limits": {"seconds": 9}},
    },
    "observation": {"type": "object", "properties": {"works": {"const": True}}},
    "mutants": [{"id": "broken", "subject": "sample:Mutant", "violates": ["works.const"], "defect": "does not work"}],
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with three claims: one like the sample, one for large GPUs only, and one that is refused."""
    (tmp_path / "pyproject.toml").write_text("[tool.harness]\n")
    (tmp_path / "sample.py").write_text("def falsify(trial): ...\nclass Subject: ...\nclass Mutant: ...\n")
    contracts = tmp_path / "contracts"
    contracts.mkdir()
    only_full = {"full": {**CONTRACT["profiles"]["full"], "requires": {"device": "cuda", "memory_gib": 130}}}
    put(contracts / "F-SAMPLE-001" / "contract.json", json.dumps(CONTRACT))
    put(contracts / "F-BIG-001" / "contract.json", json.dumps({**CONTRACT, "id": "F-BIG-001", "profiles": only_full}))
    put(contracts / "F-WRONG-001" / "contract.json", "{}")
    return tmp_path


def environment(recording: str, **more: str) -> dict[str, str]:
    paths = [str(STAND_IN), str(Path(__file__).parents[2])]
    hidden = ("NO_COLOR", "FORCE_COLOR", "CUDA_VISIBLE_DEVICES")
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    return {**kept, "PYTHONPATH": os.pathsep.join(paths), "HARNESS_TEST_NVML": recording, "COLUMNS": "200", **more}


def doctor(folder: Path, recording: str, *arguments: str) -> str:
    command = [sys.executable, "-c", "from harness.tools.doctor.command import command; command()", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment(recording), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("recording", ["h200", "gb10", "none"])
def test_gpus_and_claims(recording: str, project: Path, snapshot: SnapshotAssertion) -> None:
    """NVML's values have their sources.

    Each claim has the profile that can run here. The tools and the host are this machine's.
    """
    lines = doctor(project, recording).replace(str(project), "PROJECT").splitlines()
    shown = [line for line in lines if re.match(r"(driver|cuda|gpus?( \d)?|total|\[\d\]|F-[A-Z0-9-]+): ", line)]
    if recording == "gb10":  # its memory is that of the host, which decides whether F-BIG-001 can run
        shown = [line for line in shown if not line.startswith(("F-BIG-001: ", "total: "))]
    text = re.sub(r"[\d.]+ GiB \(system memory", "… GiB (system memory", "\n".join(shown))
    assert re.sub(r"refused; .*", "refused; …", text) == snapshot


def test_a_claim_that_would_miss_the_gpu_that_it_speaks_of(project: Path) -> None:
    """Any device can run the full profile, so the default is the CPU."""
    anywhere = {"full": {**CONTRACT["profiles"]["full"], "requires": {"device": "any"}}}
    contract = {**CONTRACT, "id": "F-ANYWHERE-001", "profiles": anywhere}
    put(project / "contracts" / "F-ANYWHERE-001" / "contract.json", json.dumps(contract))
    named = "NVIDIA GB10, compute capability 12.1"
    assert f"F-ANYWHERE-001: full; not on its target, {named}: --device cuda:0 runs it there" in doctor(project, "gb10")
    assert f"F-ANYWHERE-001: full; its target is {named}, so a PASS here is PARTIAL" in doctor(project, "none")


def test_outside_a_project(tmp_path: Path) -> None:
    assert doctor(tmp_path, "none").splitlines()[-1].startswith("project: none: no pyproject.toml with [tool.harness]")


def test_json_says_the_same(project: Path) -> None:
    report = json.loads(doctor(project, "gb10", "--json"))
    assert report["host"]["gpus"][0]["unified"] is True
    assert report["host"]["gpus"][0]["memory_bytes"] > 0
    assert report["tools"]["ptxas"]
    runs = {claim["id"]: (claim["runs"], claim["on_target"]) for claim in report["claims"]["claims"]}
    assert runs["F-SAMPLE-001"] == ("full", True)
    assert runs["F-WRONG-001"] == ("refused", None)
    assert {disk["path"] for disk in report["disks"]} >= {str(project)}


def test_a_disk_is_listed_once(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "harness", "doctor", "--json"],
        cwd=tmp_path,
        env=environment("none", TMPDIR=str(tmp_path)),
        capture_output=True,
        text=True,
        check=True,
    )
    assert [disk["path"] for disk in json.loads(done.stdout)["disks"]] == [str(tmp_path)]


@pytest.mark.parametrize("no_color", [{}, {"NO_COLOR": "1"}])
def test_tables_on_a_terminal(no_color: dict[str, str], project: Path) -> None:
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "harness", "doctor"]
    process = subprocess.Popen(
        command, cwd=project, stdout=follower, stderr=follower, env=environment("none", TERM="xterm", **no_color)
    )
    os.close(follower)
    output = b""
    while chunk := _read(leader):
        output += chunk
    os.close(leader)
    assert process.wait() == 0
    text = output.decode()
    assert "Machine" in text
    assert "F-SAMPLE-001" in text
    assert bool(re.search(r"\x1b\[[\d;]*3\d", text)) is not bool(no_color)


def _read(leader: int) -> bytes:
    try:
        return os.read(leader, 65536)
    except OSError:  # how Linux says that the other end is closed
        return b""


def test_no_heavy_module_is_loaded() -> None:
    """The help loads none, and no output needs torch."""
    script = (
        "import sys; from harness.tools.doctor.command import command; "
        "heavy = {'torch', 'psutil', 'pynvml', 'rich', 'numpy', 'jsonschema', 'filelock', 'sqlite3'}; "
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr); "
        "command(standalone_mode=False); print('torch' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment("none"), capture_output=True, text=True, check=True
    )
    assert done.stderr.splitlines() == ["[]", "False"]
