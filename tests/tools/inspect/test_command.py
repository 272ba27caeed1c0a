"""`harness inspect FILE` as a user types it."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from syrupy.assertion import SnapshotAssertion

from harness.base.vocabulary import ExitStatus
from harness.report.terminal.printing import lines_of
from harness.tools.inspect.checkpoint import Kind
from harness.tools.inspect.device_code import DeviceCode, Form, Inspection
from harness.tools.inspect.text import KINDS, device_code_page
from tests.cli.harness_command import COMMAND, complaint, environment, harness
from tests.cli.outputs import assert_follows_schema
from tests.tools.inspect.checkpoint.files import apr, safetensors_bytes

RECORDED = Path(__file__).parents[2] / "recorded" / "device_code"
W = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A file with a NaN in it."""
    broken = W.copy()
    broken[1, 1] = np.nan
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors_bytes({"layers.0.weight": W, "layers.1.weight": broken}))
    return path


def test_a_checkpoint_in_a_pipe(tmp_path: Path, model: Path) -> None:
    """The output has the format, the findings, the metadata, and one line per tensor."""
    done = harness(tmp_path, "inspect", model.name)
    assert (done.returncode, done.stderr) == (ExitStatus.PASS, "")
    lines = done.stdout.splitlines()
    assert lines[0] == f"model.safetensors: safetensors, {model.stat().st_size:,} bytes"
    assert lines[1] == "2 tensors, 12 elements: 2 F32"
    assert lines[2] == "  not-finite: 1 NaN and 0 infinite of 6: layers.1.weight"
    assert lines[4:6] == ["metadata", "  format  np"]
    assert lines[7].split() == ["tensor", "shape", "dtype", "min", "max", "sha256", "size"]
    assert lines[8].split()[:5] == ["layers.0.weight", "2x3", "F32", "0", "5"]
    assert lines[9].split()[:5] == ["layers.1.weight", "2x3", "F32", "NaN", "NaN"]


def test_findings_change_the_exit_status_only_where_asked(tmp_path: Path, model: Path) -> None:
    assert harness(tmp_path, "inspect", model.name, "--fail-on", "not-finite").returncode == ExitStatus.FAIL
    several = harness(tmp_path, "inspect", model.name, "--fail-on", "zero", "--fail-on", "duplicate")
    assert several.returncode == ExitStatus.PASS
    unknown = harness(tmp_path, "inspect", model.name, "--fail-on", "nan")
    assert unknown.returncode == ExitStatus.REFUSED
    assert "not-finite" in unknown.stderr
    alone = harness(tmp_path, "inspect", model.name, "--fail-on", "different")
    assert alone.returncode == ExitStatus.REFUSED
    assert "needs --against" in alone.stderr


def test_the_kinds_of_the_option_are_those_of_the_toolkit() -> None:
    assert tuple(kind.value for kind in Kind) == KINDS


def test_against_another_checkpoint(tmp_path: Path, model: Path) -> None:
    """The other checkpoint has another format. Differences are listed by tensor."""
    (tmp_path / "other.apr").write_bytes(apr({"layers.0.weight": W + 0.5, "extra": W}))
    done = harness(tmp_path, "inspect", model.name, "--against", "other.apr", "--fail-on", "different")
    assert done.returncode == ExitStatus.FAIL
    lines = done.stdout.splitlines()
    at = lines.index("against other.apr: 0 equal, 1 changed, 1 missing, 1 extra")
    assert lines[at + 1 : at + 3] == ["  missing  extra", "  extra  layers.1.weight"]
    assert lines[at + 3].startswith("  changed  layers.0.weight: largest difference 0.5, relative 0.1")
    same = harness(tmp_path, "inspect", model.name, "--against", model.name, "--fail-on", "different")
    assert same.returncode == ExitStatus.PASS


def test_json(tmp_path: Path, model: Path) -> None:
    """The JSON has everything, with whole digests. It is strict JSON even if a number is not finite."""
    shown = json.loads(harness(tmp_path, "inspect", model.name, "--json", "--against", model.name).stdout)
    assert_follows_schema("inspect", shown)
    assert (shown["format"], shown["elements"]) == ("safetensors", 12)
    first, second = shown["tensors"]
    assert (first["name"], first["shape"], first["dtype"], first["size"]) == ("layers.0.weight", [2, 3], "F32", 24)
    assert len(first["digest"]) == 64
    assert second["statistics"]["nan"] == 1
    assert shown["findings"] == [
        {"kind": "not-finite", "tensors": ["layers.1.weight"], "text": "1 NaN and 0 infinite of 6"}
    ]
    assert shown["comparison"]["equal"] == ["layers.0.weight", "layers.1.weight"]


def test_a_file_that_is_refused(tmp_path: Path, model: Path) -> None:
    """The message has the file, the reason and the offset; the JSON has the same."""
    (tmp_path / "cut.safetensors").write_bytes(model.read_bytes()[:-1])
    done = harness(tmp_path, "inspect", "cut.safetensors", "--json")
    assert done.returncode == ExitStatus.REFUSED
    assert done.stderr.startswith("harness: cut.safetensors: the tensors end at byte ")
    shown = json.loads(done.stdout)
    assert shown["path"] == "cut.safetensors"
    assert shown["refused"] in done.stderr
    assert shown["offset"] == model.stat().st_size - 1
    assert harness(tmp_path, "inspect", "absent").returncode == ExitStatus.REFUSED
    against = harness(tmp_path, "inspect", model.name, "--against", "cut.safetensors")
    assert against.returncode == ExitStatus.REFUSED
    assert against.stderr.startswith("harness: cut.safetensors: ")


def test_a_file_that_is_nothing_of_all_that(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """The message names both kinds, checkpoint and program."""
    (tmp_path / "README.md").write_text("# Hello\n")
    done = harness(tmp_path, "inspect", "README.md")
    assert done.returncode == ExitStatus.REFUSED
    assert done.stderr == snapshot


def test_a_name_that_steers_the_terminal_is_written_out(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(safetensors_bytes({"a\x1b[2Jb\n": W}))
    done = harness(tmp_path, "inspect", "model.safetensors")
    assert "\x1b" not in done.stdout
    assert "a\\x1b[2Jb\\n" in done.stdout


def test_a_terminal_of_80_columns(tmp_path: Path) -> None:
    """No line of the table is longer. Columns without room are left out; a long name has a line of its own."""
    long = "model.layers.23.self_attn.a_projection_with_a_rather_long_name.weight"
    (tmp_path / "model.safetensors").write_bytes(safetensors_bytes({long: W, "short": W}))
    leader, follower = pty.openpty()
    child = subprocess.Popen(
        [*COMMAND, "inspect", "model.safetensors"],
        cwd=tmp_path,
        env={**environment(tmp_path), "COLUMNS": "80"},
        stdout=follower,
    )
    os.close(follower)
    child.wait(60)
    shown = os.read(leader, 1 << 16).decode().splitlines()
    os.close(leader)
    table = shown[next(at for at, line in enumerate(shown) if line.startswith("tensor ")) :]
    assert max(map(len, table)) <= 80
    assert long in table
    assert any(line.startswith("short ") for line in table)


def without(folder: Path, file: Path, *packages: str) -> subprocess.CompletedProcess[str]:
    """Inspect a file where these packages are not installed."""
    script = (
        "import sys\n"
        f"sys.modules |= dict.fromkeys({packages!r})\n"
        "from harness.cli import main\n"
        f"sys.argv = ['harness', 'inspect', {str(file)!r}]\n"
        "main()\n"
    )
    return subprocess.run([sys.executable, "-c", script], env=environment(folder), capture_output=True, text=True)


def test_the_command_does_not_need_torch(tmp_path: Path, model: Path) -> None:
    done = without(tmp_path, model, "torch")
    assert (done.returncode, "2 tensors" in done.stdout) == (ExitStatus.PASS, True)


@pytest.mark.parametrize("package", ["numpy", "gguf", "ml_dtypes"])
def test_a_missing_package_is_named_with_its_extra(tmp_path: Path, model: Path, package: str) -> None:
    done = without(tmp_path, model, package)
    assert done.returncode == ExitStatus.REFUSED
    assert "[checkpoint]'" in done.stderr


def test_a_program_is_asked_for_its_device_code(tmp_path: Path) -> None:
    """The output has one line per kernel. The JSON has the same."""
    cubin = tmp_path / "kernels.bin"
    cubin.write_bytes((RECORDED / "sm_121.cubin").read_bytes())
    done = harness(tmp_path, "inspect", cubin.name)
    assert (done.returncode, done.stderr) == (ExitStatus.PASS, "")
    assert done.stdout.splitlines()[:2] == [f"{cubin.name}: 7,728 bytes", "1 image: 1 of machine code"]
    assert "_Z5helloPi  sm_121" in done.stdout.splitlines()
    (code,) = json.loads(harness(tmp_path, "inspect", cubin.name, "--json").stdout)["device_code"]
    assert (code["sm"], code["form"], sorted(code["kernels"])) == (121, "machine code", ["_Z5helloPi", "_Z5worldPf"])


def test_a_program_without_device_code_is_no_mistake_of_the_user(tmp_path: Path) -> None:
    done = harness(tmp_path, "inspect", "/bin/true")
    assert done.returncode == ExitStatus.PASS
    assert done.stdout.splitlines()[1] == "no code for NVIDIA GPUs"


def test_a_program_that_is_cut_short_is_refused(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """The kernels that were found are listed. The command does not claim that the file has no other code."""
    (tmp_path / "cut").write_bytes((RECORDED / "sm_121.cubin").read_bytes()[:300])
    done = harness(tmp_path, "inspect", "cut")
    assert done.returncode == ExitStatus.REFUSED
    assert done.stdout.splitlines()[1] == "no code for NVIDIA GPUs that could be read"
    assert complaint(done, tmp_path) == snapshot
    as_json = harness(tmp_path, "inspect", "cut", "--json")
    assert_follows_schema("inspect", json.loads(as_json.stdout))
    assert (as_json.returncode, json.loads(as_json.stdout)["cut_short"]) == (ExitStatus.REFUSED, done.stderr[14:-1])


def test_device_code_needs_no_extra_of_checkpoints(tmp_path: Path) -> None:
    done = without(tmp_path, RECORDED / "sm_121.cubin", "gguf", "numpy")
    assert (done.returncode, done.stderr) == (ExitStatus.PASS, "")
    assert "1 image: 1 of machine code" in done.stdout


def test_what_is_asked_of_checkpoints_only_says_so(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    done = harness(tmp_path, "inspect", str(RECORDED / "sm_121.cubin"), "--fail-on", "zero")
    assert done.returncode == ExitStatus.REFUSED
    assert complaint(done, tmp_path) == snapshot


def test_a_program_compares_with_nothing(tmp_path: Path, model: Path) -> None:
    assert harness(tmp_path, "inspect", "/bin/true", "--against", model.name).returncode == ExitStatus.REFUSED


def test_a_folder_is_refused_with_a_file_that_may_be_meant(
    tmp_path: Path, model: Path, snapshot: SnapshotAssertion
) -> None:
    (tmp_path / "index.json").write_text("{}" + 10_000 * " ")
    done = harness(tmp_path, "inspect", str(tmp_path))
    assert done.returncode == ExitStatus.REFUSED
    assert f"{tmp_path} is a folder" in done.stderr
    assert complaint(done, tmp_path) == snapshot
    (tmp_path / "empty").mkdir()
    assert "it has none" in harness(tmp_path, "inspect", str(model), "--against", "empty").stderr


def test_the_targets_of_a_kernel_stand_in_order_whatever_the_order_in_the_file() -> None:
    targets = [(Form.PTX, 75), (Form.MACHINE_CODE, 100), (Form.MACHINE_CODE, 90), (Form.MACHINE_CODE, 121)]
    codes = tuple(DeviceCode(form, sm, None, ("add",), 64 * at, 64) for at, (form, sm) in enumerate(targets))
    *_, (last, _) = lines_of(device_code_page(Inspection(Path("libengine.so"), 256, codes, ())))
    assert last == "add  sm_90, sm_100, sm_121, PTX for sm_75"
