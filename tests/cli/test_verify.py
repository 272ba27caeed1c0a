"""`harness verify`, through the installed command."""

from __future__ import annotations

import json
import os
from pathlib import Path

from syrupy.assertion import SnapshotAssertion

from harness.base.vocabulary import ExitStatus
from harness.evidence.findings import Code
from tests.cli.harness_command import harness, start
from tests.contracts import healthy
from tests.evidence.factory import DEFECTIVE, sealed, tamper


def test_a_reader_who_leaves(tmp_path: Path) -> None:
    """`harness verify … | head -1` ends as if by SIGPIPE; status 1 would mean FAIL."""
    sealed(tmp_path)
    for arguments in (["verify", "."], ["--help"]):
        process = start(tmp_path, *arguments)
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(timeout=60) == ExitStatus.UNREAD


def all_kinds(folder: Path) -> None:
    """One bundle per verdict, and an unproven one."""
    sealed(folder, run="a-pass")
    sealed(folder, run="b-fail", measurements=healthy(returned=2))
    sealed(folder, run="c-void", mutants={**DEFECTIVE, "forgets-one": {}})
    sealed(folder, run="d-nothing", measurements={})
    sealed(folder, run="e-unproven", skipped=True, overrides={"steps": 5})


def test_the_text(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """The output has one line per bundle, its findings and remarks, and the total."""
    all_kinds(tmp_path)
    tamper(sealed(tmp_path, run="f-tampered"))
    (tmp_path / "empty").mkdir()
    ended = harness(tmp_path, "verify", "evidence", "empty", "nowhere")
    assert {"stdout": ended.stdout, "stderr": ended.stderr} == snapshot


def test_sound_bundles_of_any_verdict_exit_0(tmp_path: Path) -> None:
    """The verdicts do not change the exit status."""
    all_kinds(tmp_path)
    ended = harness(tmp_path, "verify", "evidence", "--json")
    assert (ended.returncode, ended.stderr) == (0, "")
    document = json.loads(ended.stdout)
    assert [(bundle["verdict"], bundle["proven"]) for bundle in document["bundles"]] == [
        ("PASS", True),
        ("FAIL", True),
        ("VOID", False),
        ("NOT_MEASURED", True),
        ("PASS", False),
    ]
    assert document["total"]["verdicts"] == {"PASS": 2, "FAIL": 1, "NOT_MEASURED": 1, "VOID": 1}
    assert (document["total"]["sound"], document["total"]["unsound"]) == (5, 0)


def test_nothing_to_verify_exits_3(tmp_path: Path) -> None:
    """Without a bundle nothing was verified, even if another path holds a sound one."""
    (tmp_path / "empty").mkdir()
    ended = harness(tmp_path, "verify", "empty")
    assert ended.returncode == 3
    assert ended.stdout.startswith("0 bundles: ")
    sealed(tmp_path)
    assert harness(tmp_path, "verify", "evidence", "empty").returncode == 3


def test_a_path_that_is_no_folder_exits_2(tmp_path: Path) -> None:
    """A file, and a path that does not exist, are refused. At least one PATH is required."""
    (tmp_path / "file").write_text("")
    for path in ("file", "nowhere"):
        ended = harness(tmp_path, "verify", path)
        assert ended.returncode == 2
        assert ended.stderr.startswith(f"{path}: ")
    assert harness(tmp_path, "verify").returncode == 2


def test_a_bundle_named_twice_is_counted_once(tmp_path: Path) -> None:
    """The paths are the bundle and its folder."""
    bundle = sealed(tmp_path)
    ended = harness(bundle, "verify", ".", str(bundle.parent))
    assert ended.returncode == 0
    assert "1 bundle: 1 sound" in ended.stdout


def test_json_tells_all_of_it(tmp_path: Path) -> None:
    """The JSON has everything, with the same exit status."""
    sealed(tmp_path, run="a-good")
    (sealed(tmp_path, run="b-bad") / "record.json").unlink()
    (tmp_path / "empty").mkdir()
    ended = harness(tmp_path, "verify", "--json", "evidence", "empty", "nowhere")
    assert ended.returncode == 2
    document = json.loads(ended.stdout)
    assert [(bundle["sound"], bundle["verdict"], bundle["proven"]) for bundle in document["bundles"]] == [
        (True, "PASS", True),
        (False, None, False),
    ]
    assert {"code": "TAMPERED", "file": "record.json"}.items() <= document["bundles"][1]["findings"][0].items()
    assert document["no_folder"] == ["nowhere"]
    assert document["without_bundles"] == ["empty"]
    assert document["total"]["verdicts"] == {"PASS": 1, "FAIL": 0, "NOT_MEASURED": 0, "VOID": 0}


def test_names_cannot_steer_the_terminal(tmp_path: Path) -> None:
    """Escape sequences and line ends of file names and texts are escaped."""
    bundle = sealed(tmp_path)
    (bundle / "\x1b[2Jgone\n0 bundles: 1 sound").touch()
    os.close(os.open(os.fsencode(bundle) + b"/half\xff", os.O_CREAT))
    ended = harness(tmp_path, "verify", "evidence")
    assert ended.returncode == 2
    assert "\\x1b[2Jgone\\n0 bundles" in ended.stdout
    assert "\x1b" not in ended.stdout
    assert "half\\udcff" in ended.stdout


def test_help_names_every_code(tmp_path: Path) -> None:
    shown = harness(tmp_path, "verify", "--help").stdout
    assert [code for code in Code if code not in shown] == []


def test_a_project_that_is_set_up_wrong_is_no_missing_one(tmp_path: Path) -> None:
    """If pyproject.toml is wrong, `verify` says so. Otherwise it would silently skip the check for staleness."""
    sealed(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.harness]\ncontracts = "../elsewhere"\n')
    for arguments in (["verify", "evidence"], ["report", "evidence", "--markdown", "-"]):
        ended = harness(tmp_path, *arguments)
        assert (ended.returncode, "contracts" in ended.stderr, ended.stdout) == (2, True, "")
