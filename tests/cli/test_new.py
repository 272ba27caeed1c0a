"""`harness new` as a user types it."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import click
import pytest
from syrupy.assertion import SnapshotAssertion

from harness.base.vocabulary import ExitStatus
from harness.cli import new
from harness.cli.scaffold import render, write_all
from tests.cli.folders import contents
from tests.cli.harness_command import complaint, harness

ROOT = Path(__file__).parents[2]
CLAIM = "F-KERNEL-ADD-001"
WRITTEN = [
    f"contracts/kernel/{CLAIM}/contract.json",
    "falsifiers/__init__.py",
    "falsifiers/kernel/__init__.py",
    "falsifiers/kernel/add.py",
    "falsifiers/kernel/add_subject.py",
    "tests/falsifiers/kernel/test_kernel_add.py",
]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project without a claim, with our tool settings."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def tool(project: Path, *arguments: str) -> None:
    """Run a Python tool in the project; it must report nothing."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=project, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_says_what_it_wrote(project: Path) -> None:
    """Every file is named, then the next steps."""
    done = harness(project, "new", CLAIM, "--issue", "PMAT-1", "--title", "Adding adds")
    assert (done.returncode, done.stderr) == (ExitStatus.PASS, "")
    lines = done.stdout.splitlines()
    assert lines[: len(WRITTEN)] == [f"wrote {path}" for path in WRITTEN]
    assert lines[-1] == f"Then: harness lint, and harness run {CLAIM}"
    assert lines[-2].startswith("  4. tests/falsifiers/kernel/test_kernel_add.py: ")
    files = [path for path, content in contents(project).items() if content is not None]
    assert sorted(files) == sorted([*WRITTEN, "pyproject.toml"])
    contract = json.loads((project / WRITTEN[0]).read_text())
    assert [contract[key] for key in ("id", "issue", "spec", "title")] == [
        CLAIM,
        "PMAT-1",
        "SPEC-KERNEL-001",
        "Adding adds",
    ]


@pytest.mark.parametrize("kind", [(), ("--cause",), ("--training",)])
def test_lint_passes_and_nothing_is_measured(project: Path, kind: tuple[str, ...]) -> None:
    """An unfilled scaffold is sound, and its run is NOT_MEASURED."""
    harness(project, "new", CLAIM, *kind)
    linted = harness(project, "lint", "--json")
    assert linted.returncode == ExitStatus.PASS
    assert {finding["rule"] for finding in json.loads(linted.stdout)["contracts"][0]["findings"]} == {
        "text-to-do",
        "code-to-do",
    }
    done = harness(project, "run", CLAIM)
    assert done.returncode == ExitStatus.NOT_MEASURED, done.stdout + done.stderr
    assert "1 claim declared, 1 evaluated: 0 PASS, 0 FAIL, 1 NOT_MEASURED, 0 VOID" in done.stdout
    assert not list((project / "evidence").rglob("record.json"))


LONGEST = "F-" + "A" * 38 + "-" + "B" * 39


KINDS = [
    (CLAIM, []),
    ("F-ADD", []),
    (LONGEST, []),
    (f"F-CAUSE-{LONGEST[10:]}", ["--cause"]),
    (f"F-TRAINING-{LONGEST[13:]}", ["--training"]),
]


def test_the_code_is_clean_and_typed_and_its_test_passes(
    project: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    """The code of every kind passes our own settings, even with long names. A title is text, whatever it contains."""
    for identifier, kind in KINDS:
        done = harness(project, "new", identifier, *kind, "--title", 'it\'s "quoted", \\n $id \u00d7 2')
        assert done.returncode == ExitStatus.PASS, done.stderr
    tool(project, "ruff", "check", "--no-cache", ".")
    tool(project, "ruff", "format", "--check", "--no-cache", ".")
    tool(project, "pytest", "-q", "-p", "no:cacheprovider")
    monkeypatch.setenv("MYPYPATH", str(ROOT))
    tool(project, "mypy", "--strict", "--cache-dir", str(pytestconfig.cache.mkdir("mypy")), "falsifiers", "tests")


@pytest.mark.parametrize("kind", [(), ("--cause",), ("--training",)])
def test_the_code_is_laid_out_by_ruff_s_own_settings(project: Path, kind: tuple[str, ...]) -> None:
    """A repository without settings has lines of 88 characters."""
    assert harness(project, "new", "F-ADD-UP-001", *kind).returncode == ExitStatus.PASS
    tool(project, "ruff", "format", "--check", "--no-cache", "--isolated", "falsifiers", "tests")


def test_beside_claims_that_share_a_subject(project: Path) -> None:
    """An existing subject and its mutants stay untouched. The new claim has its own."""
    shutil.copytree(ROOT / "falsifiers", project / "falsifiers", ignore=shutil.ignore_patterns("__pycache__"))
    before = contents(project)
    assert harness(project, "new", "F-DISTILL-NEW-THING-001").returncode == ExitStatus.PASS
    after = contents(project)
    assert {path: after[path] for path in before} == before
    assert {"falsifiers/distill/new_thing.py", "falsifiers/distill/new_thing_subject.py"} <= after.keys()


@pytest.mark.parametrize("path", [path for path in WRITTEN if not path.endswith("__init__.py")])
def test_nothing_is_overwritten(project: Path, path: str) -> None:
    """If one of the files exists, none is written."""
    (project / path).parent.mkdir(parents=True)
    (project / path).write_text("mine\n")
    before = contents(project)
    done = harness(project, "new", CLAIM)
    assert done.returncode == ExitStatus.REFUSED
    assert path in done.stderr
    assert contents(project) == before


def test_a_dangling_link_is_not_followed(project: Path) -> None:
    """A link to nothing still occupies the place, so the file is refused."""
    (project / "falsifiers" / "kernel").mkdir(parents=True)
    (project / "falsifiers" / "kernel" / "add.py").symlink_to(project / "elsewhere.py")
    assert harness(project, "new", CLAIM).returncode == ExitStatus.REFUSED
    assert not (project / "elsewhere.py").exists()


def test_a_claim_has_one_contract(project: Path, snapshot: SnapshotAssertion) -> None:
    """A second contract of a claim is refused, also in another folder."""
    harness(project, "new", CLAIM)
    before = contents(project)
    done = harness(project, "new", CLAIM, "--folder", "other")
    assert done.returncode == ExitStatus.REFUSED
    assert complaint(done, project) == snapshot
    assert contents(project) == before


def test_a_package_of_the_same_name(project: Path) -> None:
    """falsifiers/kernel/add/ would hide falsifiers/kernel/add.py."""
    (project / "falsifiers" / "kernel" / "add").mkdir(parents=True)
    done = harness(project, "new", CLAIM)
    assert done.returncode == ExitStatus.REFUSED
    assert "--name" in done.stderr
    assert harness(project, "new", CLAIM, "--name", "addition").returncode == ExitStatus.PASS
    assert (project / "falsifiers" / "kernel" / "addition_subject.py").is_file()


def test_a_failure_half_way_leaves_nothing(project: Path) -> None:
    """A failure half way leaves nothing: here the last file cannot be written, because tests is not a folder."""
    (project / "tests").write_text("not a folder\n")
    before = contents(project)
    assert harness(project, "new", CLAIM).returncode == ExitStatus.REFUSED
    assert contents(project) == before


def test_no_other_name_is_recommended_where_none_helps(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a read-only filesystem, no other name is recommended."""

    def refuse(*_: object) -> NoReturn:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "contracts")

    monkeypatch.chdir(project)
    monkeypatch.setattr(new, "write_all", refuse)
    with pytest.raises(click.ClickException) as refused:
        new.command.main([CLAIM], standalone_mode=False)
    assert refused.value.message == "[Errno 30] Read-only file system: 'contracts'"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["f-kernel-add-001"], "is no id"),
        (["F-../../ETC"], "is no id"),
        (["F-KERNEL-ADD-001\n"], "is no id"),
        ([LONGEST + "B"], "is no id"),
        (["F-3D-ADD-001"], "invalid value for --folder"),
        (["F-KERNEL-IMPORT-001"], "invalid value for --name"),
        (["F-SCHEMA-ADD-001"], "invalid value for --folder"),
        ([CLAIM, "--folder", "../up"], "invalid value for --folder"),
        ([CLAIM, "--name", "a.b"], "invalid value for --name"),
        ([CLAIM, "--issue", "not an issue"], "invalid value for --issue"),
        ([CLAIM, "--issue", "PMAT-1\n"], "invalid value for --issue"),
        ([CLAIM, "--spec", "../SPEC"], "invalid value for --spec"),
        ([CLAIM, "--title", ""], "invalid value for --title"),
        ([CLAIM, "--title", "two\nlines"], "invalid value for --title"),
        ([CLAIM, "--title", "x" * 121], "invalid value for --title"),
    ],
)
def test_what_is_refused(project: Path, arguments: list[str], complaint: str) -> None:
    """The refusal has exit status 2 and a reason, and writes nothing."""
    before = contents(project)
    done = harness(project, "new", *arguments)
    assert done.returncode == ExitStatus.REFUSED
    assert complaint in done.stderr
    assert contents(project) == before


def test_packages_that_live_elsewhere(tmp_path: Path) -> None:
    """Falsifiers go where the project imports from, and contracts go to the project's folder of contracts."""
    (tmp_path / "pyproject.toml").write_text(
        '[tool.harness]\ncontracts = "claims"\npythonpath = ["src", "lib/python"]\n'
    )
    (tmp_path / "lib" / "python" / "falsifiers").mkdir(parents=True)
    assert harness(tmp_path, "new", CLAIM).returncode == ExitStatus.PASS
    assert (tmp_path / "claims" / "kernel" / CLAIM / "contract.json").is_file()
    assert (tmp_path / "lib" / "python" / "falsifiers" / "kernel" / "add.py").is_file()
    assert not (tmp_path / "src").exists()
    assert harness(tmp_path, "run", CLAIM).returncode == ExitStatus.NOT_MEASURED


def test_tests_that_are_a_package(project: Path) -> None:
    """The tests of two families with modules of one name have different names, also if tests/ is a package."""
    (project / "tests").mkdir()
    (project / "tests" / "__init__.py").touch()
    harness(project, "new", "F-KERNEL-ADD-001")
    harness(project, "new", "F-MATRIX-ADD-001")
    tool(project, "pytest", "-q", "-p", "no:cacheprovider")


def test_outside_a_project(tmp_path: Path) -> None:
    """The message says how to make a project."""
    done = harness(tmp_path, "new", CLAIM)
    assert done.returncode == ExitStatus.REFUSED
    assert "`harness init` makes one" in done.stderr
    assert contents(tmp_path) == {}


def test_everything_is_taken_back(tmp_path: Path) -> None:
    """After a failure, new files are gone and extended files have their old end."""
    old = tmp_path / "old.toml"
    old.write_bytes(b"first\r\n")
    additions = {old: "second\n", tmp_path / "missing.toml": "third\n"}
    with pytest.raises(FileNotFoundError):
        write_all({tmp_path / "a" / "b" / "new.txt": "new\n"}, additions)
    assert [path.name for path in tmp_path.iterdir()] == ["old.toml"]
    assert old.read_bytes() == b"first\r\n"


def test_a_template_without_a_value_is_refused() -> None:
    """No file is written with a placeholder in it."""
    with pytest.raises(KeyError, match="id"):
        render("falsifier.py.template")
