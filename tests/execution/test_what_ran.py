"""A record names the code that ran: what is imported, compiled or loaded is what the digests are of."""

from __future__ import annotations

import hashlib
import json
import os
import py_compile
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.base.vocabulary import ExitStatus
from harness.judging.observation import EndingKind
from tests.cli.harness_command import harness

CLAIM = "F-WHAT-RAN-001"
BROKEN = "class Subject:\n    def __init__(self, setting): ...\n\n    def answer(self) -> int:\n        return 41\n"
RIGHT = BROKEN.replace("41", "42")
CONTRACT = {
    "id": CLAIM,
    "issue": "RAN-1",
    "spec": "SPEC-RAN",
    "title": "The answer is 42",
    "claim": "The subject answers 42.",
    "sources": [{"uri": "urn:ran"}],
    "falsifier": "falsifiers.ran.claim:falsify",
    "subject": "falsifiers.ran.subject:Subject",
    "profiles": {"full": {"requires": {"device": "any"}, "parameters": {}, "limits": {"seconds": 60}}},
    "observation": {"type": "object", "properties": {"answer": {"const": 42, "x-source": "the claim"}}},
    "mutants": [
        {"id": "zero", "subject": "falsifiers.ran.mutants:Zero", "violates": ["answer.const"], "defect": "it answers 0"}
    ],
}
FALSIFIER = """
from typing import Protocol
from harness import Trial

class Subject(Protocol):
    def answer(self) -> int: ...

def falsify(trial: Trial[Subject]) -> None:
    with trial.subject_fault():
        answer = trial.subject.answer()
    trial.measure(answer=answer)
    trial.resolve(device="cpu")
"""
UNCHECKED = py_compile.PycInvalidationMode.UNCHECKED_HASH
ZERO = "class Zero:\n    def __init__(self, setting): ...\n\n    def answer(self) -> int:\n        return 0\n"


def write(root: Path, files: dict[str, str]) -> None:
    """Write these files below a folder."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def git(root: Path, *arguments: str) -> None:
    """Call git as some author."""
    author = {f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {**os.environ, **author, "GIT_CONFIG_GLOBAL": os.devnull}
    subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True, env=environment)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A committed project whose subject is broken, and whose Python caches git ignores."""
    root = tmp_path / "project"
    write(
        root,
        {
            "pyproject.toml": "[tool.harness]\n",
            ".gitignore": "__pycache__/\n*.pyc\n/falsifiers/ran/subject/\nevidence/\n",
            f"contracts/ran/{CLAIM}/contract.json": json.dumps(CONTRACT),
            "falsifiers/ran/claim.py": FALSIFIER,
            "falsifiers/ran/mutants.py": ZERO,
            "falsifiers/ran/subject.py": BROKEN,
        },
    )
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "one")
    return root


def record(root: Path) -> dict[str, object]:
    """The record of the only bundle."""
    (path,) = (root / "evidence" / "RAN-1" / CLAIM).glob("*/record.json")
    found: dict[str, object] = json.loads(path.read_text())
    return found


def stale(mode: py_compile.PycInvalidationMode) -> Callable[[Path], None]:
    """Leave the bytecode of the right subject beside the broken one, as if it were of the same moment."""

    def leave(root: Path) -> None:
        file = root / "falsifiers/ran/subject.py"
        state = file.stat()
        file.write_text(RIGHT)
        os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
        py_compile.compile(str(file), invalidation_mode=mode)
        file.write_text(BROKEN)
        os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
        if mode is py_compile.PycInvalidationMode.CHECKED_HASH:  # its flags say that nobody need check the source
            (cached,) = (file.parent / "__pycache__").glob("subject.*.pyc")
            content = bytearray(cached.read_bytes())
            content[4:8] = (1).to_bytes(4, "little")
            cached.write_bytes(bytes(content))

    return leave


@pytest.mark.parametrize(
    ("mode", "isolate"),
    [*((mode, []) for mode in py_compile.PycInvalidationMode), (UNCHECKED, ["--isolate"])],
    ids=[*(mode.name.lower() for mode in py_compile.PycInvalidationMode), "isolated"],
)
def test_bytecode_of_other_code_does_not_run(
    root: Path, mode: py_compile.PycInvalidationMode, isolate: list[str]
) -> None:
    """The committed source is broken, so the claim is FAIL, whatever the bytecode beside it holds."""
    stale(mode)(root)
    assert harness(root, "run", CLAIM, *isolate).returncode == ExitStatus.FAIL
    assert record(root)["commit"]["dirty"] is False  # type: ignore[index]


def test_a_child_python_runs_no_bytecode_either(root: Path) -> None:
    """A subject can start Python itself. That one compiles the source, too."""
    asks = "import subprocess, sys\n" + BROKEN.replace(
        "return 41", "return int(subprocess.run([sys.executable, '-c', 'import ran_rate; print(ran_rate.RATE)'],"
        " capture_output=True, text=True, cwd=sys.path[0]).stdout)",
    )  # fmt: skip
    write(root, {"falsifiers/ran/subject.py": asks, "ran_rate.py": "RATE = 42\n"})
    rate = root / "ran_rate.py"
    py_compile.compile(str(rate), invalidation_mode=UNCHECKED)
    rate.write_text("RATE = 41\n")
    assert harness(root, "run", CLAIM).returncode == ExitStatus.FAIL


@pytest.mark.parametrize("isolate", [[], ["--isolate"]], ids=["shared", "isolated"])
def test_bytecode_without_a_source_is_no_subject(root: Path, isolate: list[str]) -> None:
    """Python would import it. A record could not say what it was made from."""
    file = root / "falsifiers/ran/subject.py"
    file.write_text(RIGHT)
    py_compile.compile(str(file), cfile=str(file.with_suffix(".pyc")))
    file.unlink()
    assert harness(root, "run", CLAIM, *isolate).returncode not in (ExitStatus.PASS, ExitStatus.FAIL)


def test_a_package_that_shadows_a_module_is_named(root: Path) -> None:
    """Python prefers the package, which git ignores. The record names it, and it is not in the commit."""
    write(root, {"falsifiers/ran/subject/__init__.py": RIGHT})
    assert harness(root, "run", CLAIM).returncode == ExitStatus.PASS
    sources, commit = record(root)["sources"], record(root)["commit"]
    assert "falsifiers/ran/subject/__init__.py" in sources  # type: ignore[operator]
    assert "falsifiers/ran/subject.py" not in sources  # type: ignore[operator]
    assert commit["dirty"] is True  # type: ignore[index]


def test_a_change_that_git_is_told_not_to_see_is_seen(root: Path) -> None:
    """The index can say that a file is unchanged. The digests say that it is not the commit's."""
    git(root, "update-index", "--assume-unchanged", "falsifiers/ran/subject.py")
    write(root, {"falsifiers/ran/subject.py": RIGHT})
    assert harness(root, "run", CLAIM).returncode == ExitStatus.PASS
    assert record(root)["commit"]["dirty"] is True  # type: ignore[index]


@pytest.mark.parametrize("edited", [False, True])
def test_an_annotated_contract_is_that_of_the_commit(root: Path, edited: bool) -> None:
    """The contract's digest leaves annotations out, and the file in the commit has them. An edited one differs."""
    (contract,) = root.glob(f"contracts/*/{CLAIM}/contract.json")
    contract.write_text(json.dumps({**CONTRACT, "stands_in_for": "another one"}))
    git(root, "commit", "--quiet", "--all", "--message", "annotate")
    if edited:
        contract.write_text(json.dumps({**CONTRACT, "stands_in_for": "yet another one"}))
    harness(root, "run", CLAIM)
    assert record(root)["commit"]["dirty"] is edited  # type: ignore[index]


REWRITES = "import pathlib\npathlib.Path(__file__).write_text({text!r})\n"


@pytest.mark.parametrize("isolate", [[], ["--isolate"]], ids=["shared", "isolated"])
def test_a_module_that_rewrites_itself_is_not_measured(root: Path, isolate: list[str]) -> None:
    """What ran is on no disk any more."""
    write(root, {"falsifiers/ran/subject.py": REWRITES.format(text=BROKEN) + RIGHT})
    assert harness(root, "run", CLAIM, *isolate).returncode == ExitStatus.NOT_MEASURED
    (observation,) = (root / "evidence").rglob("observation.json")
    ending = json.loads(observation.read_text())["ending"]
    assert (ending["kind"], ending["reason"]) == (EndingKind.CHANGED, "falsifiers/ran/subject.py")


LOADS = (
    "import importlib.util as u; s = u.spec_from_file_location('x', f); m = u.module_from_spec(s); "
    "s.loader.exec_module(m); answer = m.answer",
    "import runpy; answer = runpy.run_path(f)['answer']",
    "answer = {}; exec(compile(open(f).read(), f, 'exec'), answer); answer = answer['answer']",
    "answer = {}; exec(open(f).read(), answer); answer = answer['answer']",
    "from importlib.machinery import SourceFileLoader; answer = SourceFileLoader('x', f).load_module().answer",
)
"""Ways to run the file f."""


def test_however_code_is_loaded_its_source_runs_and_is_named(root: Path) -> None:
    """Bytecode beside a file that is loaded by its path does not run either."""
    subject, digests = "import pathlib\nanswers = []\n", {}
    for number, load in enumerate(LOADS):
        helper = root / f"falsifiers/ran/helper{number}.py"
        helper.write_text("answer = 42\n")
        py_compile.compile(str(helper), invalidation_mode=UNCHECKED)
        helper.write_text(f"answer = {number}\n")
        subject += f"f = str(pathlib.Path(__file__).with_name('{helper.name}'))\n{load}\nanswers.append(answer)\n"
        digests[f"falsifiers/ran/{helper.name}"] = hashlib.sha256(helper.read_bytes()).hexdigest()
    expected = list(range(len(LOADS)))
    subject += BROKEN.replace("return 41", f"return 41 if answers == {expected} else 42")
    write(root, {"falsifiers/ran/subject.py": subject})
    assert harness(root, "run", CLAIM).returncode == ExitStatus.FAIL
    (observation,) = (root / "evidence").rglob("observation.json")
    assert json.loads(observation.read_text())["measurements"] == {"answer": 41}
    assert digests.items() <= record(root)["sources"].items()  # type: ignore[attr-defined]


def test_data_that_changes_during_the_trial_is_not_measured(root: Path) -> None:
    """A file beside the code counts as its source, also if the subject itself changes it."""
    body = "p = __import__('pathlib').Path(__file__).with_name('rate.txt'); n = int(p.read_text()); p.write_text('0')\n"
    write(root, {"falsifiers/ran/rate.txt": "42", "falsifiers/ran/subject.py": body + RIGHT.replace("42", "n")})
    assert harness(root, "run", CLAIM).returncode == ExitStatus.NOT_MEASURED


def test_mutants_are_of_the_code_that_the_subject_was_of(root: Path) -> None:
    """Subject and mutant import a module when they are built. It changes in between."""
    builds = (
        "    def __init__(self, setting):\n        from falsifiers.ran import late\n        self.late = late.NUMBER\n"
    )
    late = RIGHT.replace("    def __init__(self, setting): ...\n", builds).replace("return 42", "return self.late")
    rewrites = "import pathlib\np = pathlib.Path(__file__).with_name('late.py')\n"
    mutant = ZERO.replace("def __init__(self, setting): ...", "def __init__(self, setting): p.write_text('NUMBER = 0')")
    write(
        root,
        {
            "falsifiers/ran/subject.py": late,
            "falsifiers/ran/late.py": "NUMBER = 42\n",
            "falsifiers/ran/mutants.py": rewrites + mutant,
        },
    )
    assert harness(root, "run", CLAIM).returncode == ExitStatus.NOT_MEASURED


def test_nothing_is_written_beside_the_sources(root: Path) -> None:
    """A run leaves no bytecode in the project."""
    write(root, {"falsifiers/ran/subject.py": RIGHT})
    harness(root, "run", CLAIM)
    assert list(root.rglob("*.pyc")) == []


def test_another_project_may_have_packages_of_the_same_names(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both projects have falsifiers.ran.subject. Each claim gets its own, and evidence of both stays current."""
    site = tmp_path / "site"
    theirs = {**CONTRACT, "id": "F-THEIRS-RAN-001"}
    write(
        site / "harness_claims/theirs",
        {
            f"contracts/ran/{theirs['id']}/contract.json": json.dumps(theirs),
            "falsifiers/__init__.py": "",
            "falsifiers/ran/__init__.py": "",
            "falsifiers/ran/claim.py": FALSIFIER,
            "falsifiers/ran/mutants.py": ZERO,
            "falsifiers/ran/subject.py": RIGHT,
        },
    )
    monkeypatch.setenv("PYTHONPATH", str(site))
    write(root, {"falsifiers/__init__.py": "# the user's own\n"})
    for claim, expected in ((CLAIM, ExitStatus.FAIL), (str(theirs["id"]), ExitStatus.PASS)):
        done = harness(root, "run", claim)
        assert done.returncode == expected, done.stdout + done.stderr
    shown = harness(root, "status", "--json")
    states = {load["id"]: load["status"] for load in json.loads(shown.stdout)["claims"]}
    assert (states[CLAIM], states[str(theirs["id"])]) == ("FALSIFIED", "PARTIAL")  # no hardware is named


def test_code_of_both_projects_in_one_process(tmp_path: Path) -> None:
    """A claim of one project judges code of another one, whose imports find its own modules first."""
    write(tmp_path / "claims", {"falsifiers/ran/common.py": "NAME = 'claims'\n", "falsifiers/base.py": "BASE = 1\n"})
    write(
        tmp_path / "user",
        {
            "falsifiers/ran/common.py": "NAME = 'user'\n",
            "falsifiers/ran/mine.py": "from falsifiers.ran import common\nfrom falsifiers.ran.common import NAME\n"
            "import falsifiers.ran.common\nfrom falsifiers.base import BASE\nfrom . import common as near\n"
            "names = [common.NAME, NAME, falsifiers.ran.common.NAME, near.NAME]\n",
        },
    )
    program = (
        "import json, pathlib, sys; from harness.contract.project_importer import import_other, install\n"
        "install([pathlib.Path(sys.argv[1], 'claims')], [pathlib.Path(sys.argv[1], 'user')]).add('falsifiers')\n"
        "import falsifiers.ran.common as theirs; mine = import_other('falsifiers.ran.mine')\n"
        "print(json.dumps([theirs.NAME, mine.names, mine.BASE, import_other('falsifiers.base').BASE]))"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False)
    assert json.loads(done.stdout or "null") == ["claims", ["user"] * 4, 1, 1], done.stderr
