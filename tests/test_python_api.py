"""`import harness` in a script or a notebook."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import harness
from harness.base.vocabulary import Verdict
from harness.contract.project import ProjectError
from harness.evidence.findings import Code
from tests.evidence.factory import copy_of, sealed, tamper
from tests.pytest_plugin.demo import FAILS, PASSES, write_demo


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The demo project as the current folder, with caches and leases of its own."""
    for name in ("CACHE", "LEASE"):
        monkeypatch.setenv(f"HARNESS_{name}_DIR", str(tmp_path / name.lower()))
    monkeypatch.chdir(write_demo(tmp_path / "project"))
    return tmp_path / "project"


def test_every_name_is_there() -> None:
    """`__all__`, the lazy names, and the names for type checkers are the same."""
    assert all(getattr(harness, name) is not None for name in harness.__all__)
    lazy = [name for names in harness._MODULES.values() for name in names]
    assert sorted(lazy) == sorted(harness.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        harness.nothing  # noqa: B018


def test_importing_is_light() -> None:
    """Neither harness nor its pytest plugin loads anything of the harness before it is used."""
    script = (
        "import sys, harness.pytest_plugin, harness\n"
        "print(sorted(name for name in sys.modules if name.partition('.')[0] in "
        "('harness', 'torch', 'pandas', 'numpy', 'click', 'jsonschema', 'rich')))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['harness', 'harness.pytest_plugin']"


def test_claims_run_from_python(folder: Path) -> None:
    """The verdicts come back with the bundles. A FAIL raises nothing."""
    events: list[str] = []
    done = harness.run([PASSES, FAILS], device="cpu", jobs=1, watch=lambda event: events.append(type(event).__name__))
    assert [result.record.verdict for result in done] == [Verdict.PASS, Verdict.FAIL]
    assert [result.record.command for result in done] == [
        f"harness run --device cpu {name}" for name in (PASSES, FAILS)
    ]
    assert (events[0], events[-1]) == ("RunStarted", "RunFinished")
    assert all(bundle.sound for bundle in harness.verify(folder / "evidence"))
    assert done[0].bundle is not None
    assert [result.verdict for result in harness.verify(done[0].bundle)] == [Verdict.PASS]


def test_a_watch_that_raises(folder: Path) -> None:
    """The run goes on. A warning says why nothing more was heard."""

    def watch(event: object) -> None:
        raise ArithmeticError("a defect of mine")

    with pytest.warns(RuntimeWarning, match="a defect of mine"):
        (done,) = harness.run(PASSES, device="cpu", mutants=False, watch=watch)
    assert done.record.verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("ids", "options", "error"),
    [
        ("F-DEMO-SRT-001", {}, ProjectError),
        ([], {}, ValueError),
        (PASSES, {"profile": "tiny"}, ValueError),
        (PASSES, {"device": "gpu"}, ValueError),
        (PASSES, {"seed": -1}, ValueError),
        (PASSES, {"evidence": "pyproject.toml"}, OSError),
    ],
)
def test_wrong_arguments_are_refused_before_anything_runs(
    folder: Path, ids: str | list[str], options: dict[str, object], error: type[Exception]
) -> None:
    """No bundle is sealed."""
    with pytest.raises(error):
        harness.run(ids, **options)  # type: ignore[arg-type]
    assert not (folder / "evidence").exists()


def test_no_module_takes_the_place_of_the_function() -> None:
    """Python sets an attribute of a package to each of its imported modules."""
    import harness.running.engine

    assert inspect.isfunction(harness.run)
    assert inspect.isfunction(harness.verify)


def test_verifying_returns_findings(tmp_path: Path) -> None:
    """A defect is a finding. A refused remark leaves a bundle sound."""
    bundle = sealed(tmp_path)
    tamper(copy_of(bundle, tmp_path / "copy"))
    (changed,) = harness.verify(tmp_path / "copy")
    assert {finding.code for finding in changed.findings} == {Code.TAMPERED}
    (sound,) = harness.verify(bundle, fail_on=["UNSIGNED"])
    assert (sound.sound, sound.accepted, sound.refused) == (True, False, (Code.UNSIGNED,))
    with pytest.raises(ValueError, match="UNSIGND"):
        harness.verify(bundle, fail_on=["UNSIGND"])
