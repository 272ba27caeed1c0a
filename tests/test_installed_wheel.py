"""The installed wheels in another repository: `harness init`, a claim about its code, a PASS, its evidence.

The wheels of the harness and of its claims are built from this tree and installed into a virtual environment of their
own. That environment uses the dependencies of this one, but none of its paths: it can find them only by the wheels.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from harness.base.version import VERSION
from harness.base.vocabulary import ExitStatus

ROOT = Path(__file__).parents[1]
CLAIM = "F-SCHEDULE-COSINE-001"

PYPROJECT = """\
[project]
name = "tinytrain"
version = "3.1.4"  # theirs
"""

THEIR_CODE = '''\
"""Learning rates."""

import math


def cosine(step: int, steps: int) -> float:
    """1 at step 0, 0 at the last."""
    return 0.5 * (1.0 + math.cos(math.pi * step / steps))
'''

SUBJECT = '''\
"""The subject we ship for F-SCHEDULE-COSINE-001."""

from harness import Setting
from tinytrain.schedule import cosine


class Reference:
    def __init__(self, setting: Setting) -> None:
        self.steps = setting.parameters["steps"]

    def rate(self, step: int) -> float:
        return cosine(step, self.steps)
'''

FALSIFIER = '''\
"""Tries to refute F-SCHEDULE-COSINE-001."""

from typing import Protocol

from harness import Trial


class Subject(Protocol):
    def rate(self, step: int) -> float: ...


def falsify(trial: Trial[Subject]) -> None:
    steps = trial.parameters["steps"]
    rates = []
    for step in range(steps + 1):
        with trial.subject_fault():
            rates.append(float(trial.subject.rate(step)))
        trial.step(step, rate=rates[-1])
    rises = sum(later >= earlier for earlier, later in zip(rates, rates[1:]))
    trial.measure(rates=rates, first=rates[0], last=rates[-1], rises=rises)
    trial.resolve(device="cpu", steps=len(rates) - 1)
'''

MUTANTS = '''\
"""Mutants for F-SCHEDULE-COSINE-001: one defect each."""

from falsifiers.schedule.cosine_subject import Reference


class Restarted(Reference):
    def rate(self, step: int) -> float:
        return super().rate(2 * step % (self.steps + 1))


class EndsEarly(Reference):
    def rate(self, step: int) -> float:
        return super().rate(step) * 0.9 + 0.1
'''

OBSERVATION = {
    "type": "object",
    "properties": {
        "rates": {
            "type": "array",
            "minItems": 1,
            "items": {"type": "number", "minimum": 0, "maximum": 1, "x-source": "the peak is 1 by definition"},
        },
        "first": {"type": "number", "const": 1.0, "x-source": "the peak is 1 by definition"},
        "last": {"type": "number", "maximum": 1e-15, "x-source": "rounding of cos(pi)"},
        "rises": {"type": "integer", "maximum": 0},
    },
}


def _built(project: Path, folder: Path) -> Path:
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(project)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree."""
    return _built(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def claims_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of its claims."""
    return _built(ROOT / "claims", tmp_path_factory.mktemp("claims"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the commands of an environment that holds the harness."""
    return _environment(tmp_path_factory.mktemp("environment"), wheel)


def _environment(folder: Path, *wheels: Path) -> Path:
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", *map(str, wheels)], timeout=300, check=True)
    # Python reads no .pth file in a folder that a .pth file names, so that our own editable install stays out of sight.
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A git repository with a package in src/ that has nothing to do with ours."""
    root = tmp_path / "theirs"
    package = root / "src" / "tinytrain"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "schedule.py").write_text(THEIR_CODE)
    (root / "pyproject.toml").write_text(PYPROJECT)
    (root / ".gitignore").write_text("*.log\n__pycache__/\n")
    subprocess.run(["git", "init", "--quiet", str(root)], check=True)
    return root


def run(installed: Path, folder: Path, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run an installed command in a folder, with no path of ours in its environment."""
    scratch = folder.parent / "scratch"
    environment = {
        "PATH": os.pathsep.join([str(installed), "/usr/local/bin", "/usr/bin", "/bin"]),
        "HOME": str(scratch),
        "HARNESS_CACHE_DIR": str(scratch / "cache"),
        "HARNESS_LEASE_DIR": str(scratch / "leases"),
        "LC_ALL": "C.UTF-8",
    }
    return subprocess.run(
        [str(installed / command), *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_wheel_is_complete(wheel: Path) -> None:
    """The wheel has every schema and template, and none of our claims or tests."""
    names = set(zipfile.ZipFile(wheel).namelist())
    schemas = {f"harness/schema/{path.name}" for path in (ROOT / "contracts" / "schema").iterdir()}
    templates = {
        path.relative_to(ROOT).as_posix()
        for folder in ("cli", "tools/html")
        for path in (ROOT / "harness" / folder / "templates").rglob("*.*")
    }
    assert schemas | templates <= names
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"harness", "falsifier_harness"}


def test_it_is_the_wheel_that_runs(installed: Path, theirs: Path) -> None:
    """The package and its tools are found in the wheel's environment, not in this tree."""
    done = run(installed, theirs, "python", "-c", "import harness; print(harness.__file__)")
    assert Path(done.stdout.strip()).is_relative_to(installed.parent)
    assert "Tools:\n  attest " in run(installed, theirs, "harness", "--help").stdout


def test_a_claim_about_their_own_code(installed: Path, theirs: Path) -> None:
    """The test goes from `harness init` to a sealed bundle that verifies."""
    done = run(installed, theirs, "harness", "init")
    assert done.returncode == ExitStatus.PASS, done.stderr
    assert (theirs / "pyproject.toml").read_text().startswith(PYPROJECT)
    done = run(installed, theirs, "harness", "new", CLAIM, "--issue", "TINY-1", "--title", "The rate falls to nothing")
    assert done.returncode == ExitStatus.PASS, done.stderr
    fill_in(theirs)

    done = run(installed, theirs, "harness", "lint")
    assert done.returncode == ExitStatus.PASS, done.stdout + done.stderr
    done = run(installed, theirs, "harness", "run", CLAIM)
    assert done.returncode == ExitStatus.PASS, done.stdout + done.stderr
    assert "1 claim declared, 1 evaluated: 1 PASS, 0 FAIL, 0 NOT_MEASURED, 0 VOID" in done.stdout

    # pytest finds the plugin by its entry point.
    done = run(
        installed, theirs, "python", "-m", "pytest", "--claims", "--claims-strict", "-rA", "--claims-evidence=build"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list((theirs / "build" / "TINY-1" / CLAIM).iterdir())) == 1

    (bundle,) = (theirs / "evidence" / "TINY-1" / CLAIM).iterdir()
    record = json.loads((bundle / "record.json").read_text())
    assert (record["verdict"], record["proven"]) == ("PASS", True)
    assert "src/tinytrain/schedule.py" in record["sources"]
    assert run(installed, theirs, "harness", "verify", "evidence").returncode == ExitStatus.PASS
    assert run(installed, theirs, "harness", "verify", str(bundle)).returncode == ExitStatus.PASS
    taken = subprocess.run(
        ["git", "ls-files", "--others", "--exclude-standard", "evidence"],
        cwd=theirs,
        capture_output=True,
        text=True,
        check=True,
    )
    there = {path.relative_to(theirs).as_posix() for path in bundle.rglob("*") if path.is_file()}
    assert there <= set(taken.stdout.splitlines())  # logs too, for any .gitignore of the project


def fill_in(theirs: Path) -> None:
    """Write the claim into the files that `harness new` made."""
    path = theirs / "contracts" / "schedule" / CLAIM / "contract.json"
    contract = json.loads(path.read_text())
    contract["title"] = "The rate falls to nothing"
    contract["claim"] = "The rate is 1 at the first step, falls at every step, and is 0 at the last."
    contract["sources"] = [{"uri": "https://arxiv.org/abs/1608.03983", "locator": "equation 5"}]
    contract["parameters"]["properties"] = {"steps": {"type": "integer", "minimum": 1}}
    contract["profiles"]["full"]["parameters"] = {"steps": 100}
    contract["observation"] = OBSERVATION
    contract["rules"] = []
    contract["mutants"] = [
        {"id": "restarted", "violates": ["rises.maximum"], "defect": "a restart half-way"},
        {"id": "ends-early", "violates": ["last.maximum"], "defect": "a floor that was never taken out"},
    ]
    names = ("Restarted", "EndsEarly")
    for mutant, name in zip(contract["mutants"], names, strict=True):
        mutant["subject"] = f"falsifiers.schedule.cosine_mutants:{name}"
    path.write_text(json.dumps(contract, indent=2))
    package = theirs / "falsifiers" / "schedule"
    for name, text in (("cosine", FALSIFIER), ("cosine_subject", SUBJECT), ("cosine_mutants", MUTANTS)):
        (package / f"{name}.py").write_text(text)


def test_installed_claims_run_in_a_repository_without_claims(
    wheel: Path, claims_wheel: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """They are listed with their place, run with the folders of that place, and leave their evidence here."""
    names = zipfile.ZipFile(claims_wheel).namelist()
    ours = {path.parent.name for path in ROOT.glob("contracts/*/*/contract.json")}
    held = {name for name in names if name.endswith("/contract.json") and Path(name).parent.name in ours}
    assert len(held) == len(ours)
    assert any(name.endswith("falsifier_harness/trainers/transformers-trainer.toml") for name in names)
    needs, built = (
        tomllib.loads((ROOT / part).read_text())["project"] for part in ("pyproject.toml", "claims/pyproject.toml")
    )
    assert needs["optional-dependencies"]["claims"] == [f"{built['name']}=={built['version']}"]
    assert built["version"] == VERSION

    commands = _environment(tmp_path_factory.mktemp("with-claims"), wheel, claims_wheel)
    theirs = tmp_path / "theirs"
    (theirs / ".git").mkdir(parents=True)
    listed = json.loads(run(commands, theirs, "harness", "list", "--json").stdout)["claims"]
    assert {row["id"] for row in listed} == ours
    assert all(Path(row["from"]).is_relative_to(commands.parent) for row in listed)
    done = run(commands, theirs, "harness", "run", "F-APR-V2-LAYOUT-001", "--profile", "reduced", "--no-mutants")
    assert done.returncode == ExitStatus.PASS, done.stdout + done.stderr
    (bundle,) = (theirs / "evidence").glob("*/F-APR-V2-LAYOUT-001/*")
    assert (
        "harness_claims/falsifier_harness/falsifiers/apr/layout.py"
        in json.loads((bundle / "record.json").read_text())["sources"]
    )
    verified = run(commands, theirs, "harness", "verify", "evidence")
    assert (verified.returncode, "STALE" in verified.stdout) == (ExitStatus.PASS, False), verified.stdout
