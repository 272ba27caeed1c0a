"""Fork servers that share the imports of libraries."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from harness.contract import Contract
from harness.contract.project import Project
from harness.execution.local_executor import LocalExecutor, LocalExecutors
from harness.judging.observation import EndingKind
from tests.execution.projects import run, write_project

LIBRARY = """
import os, pathlib
with pathlib.Path(__file__).with_name("imports.txt").open("a") as file:
    file.write(f"{__name__}\\n")
"""


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of libraries outside of the project. Each library notes that it was imported."""
    folder = tmp_path / "libraries"
    folder.mkdir()
    for name in ("common", "rare", "deadly"):
        (folder / f"{name}.py").write_text(LIBRARY)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with a healthy claim."""
    root = tmp_path / "project"
    root.mkdir()
    return write_project(root)


@pytest.fixture
def claims(project: Project) -> Callable[..., list[Contract]]:
    """Return a function that writes claims. Each has its own module, which begins with the given lines."""

    def write(*beginnings: str) -> list[Contract]:
        healthy = project.contract("F-TOY-SORT-001")
        code = (project.root / "toy" / "sorting.py").read_text()
        found = []
        for number, beginning in enumerate(beginnings):
            (project.root / "toy" / f"sorting_{number}.py").write_text(f"{beginning}\n{code}")
            entry = f"toy.sorting_{number}"
            subject, falsifier = (
                f"{entry}:{entry_point.partition(':')[2]}" for entry_point in (healthy.subject, healthy.falsifier)
            )
            found.append(dataclasses.replace(healthy, id=f"F-TOY-{number}", subject=subject, falsifier=falsifier))
        return found

    return write


def trials(executors: LocalExecutors, contracts: list[Contract]) -> Iterator[tuple[LocalExecutor, EndingKind]]:
    """Run a trial of each claim."""
    for contract in contracts:
        with executors(contract) as executor:
            executor.imports()
            yield executor, run(executor, "well").observation.ending.kind


def test_claims_share_the_import_of_a_library(
    project: Project, libraries: Path, claims: Callable[..., list[Contract]], tmp_path: Path
) -> None:
    """A library that several claims import is imported once. A library of one claim is not in the others' processes."""
    others = psutil.Process().children(recursive=True)
    contracts = claims("import common", "import common, rare", "import common, sys; assert 'rare' not in sys.modules")
    executors = LocalExecutors(project, contracts, tmp_path / "cache")
    found = [kind for _, kind in trials(executors, contracts)]
    executors.close()
    assert found == [EndingKind.COMPLETED] * 3
    assert (libraries / "imports.txt").read_text().split() == ["common", "rare"]
    assert set(psutil.Process().children(recursive=True)) <= set(others)


def test_a_variable_is_admitted_to_its_claim_alone(
    project: Project,
    libraries: Path,
    claims: Callable[..., list[Contract]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another claim of the run does not get it, although both import the same library."""
    monkeypatch.setenv("ADMITTED", "yes")
    there, absent = (
        f"import common, os; assert ('ADMITTED' in os.environ) is {is_there}" for is_there in (True, False)
    )
    contracts = claims(there, absent)
    executors = LocalExecutors(project, contracts, tmp_path / "cache", {contracts[0].id: ("ADMITTED",)})
    found = [kind for _, kind in trials(executors, contracts)]
    executors.close()
    assert found == [EndingKind.COMPLETED] * 2


def test_a_claim_that_runs_again_imports_nothing_again(
    project: Project, libraries: Path, claims: Callable[..., list[Contract]], tmp_path: Path
) -> None:
    """If that is announced, libraries of one claim are kept, too."""
    contracts = claims("import rare") * 3
    executors = LocalExecutors(project, contracts[:1], tmp_path / "cache", again=True)
    found = [kind for _, kind in trials(executors, contracts)]
    executors.close()
    assert found == [EndingKind.COMPLETED] * 3
    assert (libraries / "imports.txt").read_text().split() == ["rare"]


def test_a_claim_waits_for_its_own_libraries_only(
    project: Project, libraries: Path, claims: Callable[..., list[Contract]], tmp_path: Path
) -> None:
    """A claim does not wait for slow libraries that only other claims share."""
    waits = (
        "import time\nend = time.monotonic() + 20\nwhile not file.exists() and time.monotonic() < end: time.sleep(0.01)"
    )
    go, begun = libraries / "go", libraries / "begun"
    note = f"import pathlib\npathlib.Path({str(begun)!r}).touch()\nfile = pathlib.Path({str(go)!r})"
    (libraries / "slow.py").write_text(f"{note}\n{waits}\n")
    contracts = claims("import slow", "import slow", "import common", "import common")
    executors = LocalExecutors(project, contracts, tmp_path / "cache")
    slow: list[EndingKind] = []
    thread = threading.Thread(target=lambda: slow.extend(kind for _, kind in trials(executors, contracts[:2])))
    thread.start()
    while not begun.exists():
        time.sleep(0.01)
    assert [kind for _, kind in trials(executors, contracts[2:])] == [EndingKind.COMPLETED] * 2
    assert slow == []
    go.touch()
    thread.join()
    executors.close()
    assert slow == [EndingKind.COMPLETED] * 2


def test_each_claim_has_its_own_sources(
    project: Project, libraries: Path, claims: Callable[..., list[Contract]], tmp_path: Path
) -> None:
    """Modules of other claims are no sources of a claim, although one server has forked all of them."""
    contracts = claims("import common", "import common")
    executors = LocalExecutors(project, contracts, tmp_path / "cache")
    sources = []
    for contract in contracts:
        with executors(contract) as executor:
            sources.append(set(executor.imports().sources))
    executors.close()
    assert sources == [{"toy/__init__.py", "toy/sorting.py", f"toy/sorting_{number}.py"} for number in (0, 1)]


@pytest.mark.parametrize(("defect", "runs"), [("os._exit(3)", False), ("raise SystemExit", False), ("os.fork()", True)])
def test_a_library_that_spoils_the_shared_server(
    project: Project, libraries: Path, claims: Callable[..., list[Contract]], tmp_path: Path, defect: str, runs: bool
) -> None:
    """Each claim then has its own server, which reports what happened there.

    A claim without the library runs as usual.
    """
    (libraries / "deadly.py").write_text(f"import os\n{defect}\n")
    contracts = claims("import common, deadly", "import common, deadly", "import common")
    executors = LocalExecutors(project, contracts, tmp_path / "cache")
    found = [kind is EndingKind.COMPLETED for _, kind in trials(executors, contracts)]
    places = [next(iter(executors._servers.values()))._servers[frozenset()].folder]
    executors.close()
    assert found == [runs, runs, True]
    assert not any(place.exists() for place in places)


def test_servers_are_closed_for_good(
    project: Project, libraries: Path, claims: Callable[..., list[Contract]], tmp_path: Path
) -> None:
    """A claim that comes after the run was interrupted starts nothing."""
    contracts = claims("import common", "import common")
    executors = LocalExecutors(project, contracts, tmp_path / "cache")
    executors.close()
    with pytest.raises(OSError, match="the run is over"):
        executors(contracts[0]).__enter__()


# The server imports the falsifier's module, so the server meets what the module does to `os`. A file records that it
# happened once, because the memory of a fork is lost with it.
FAILS_ONCE = """
import os, pathlib
_{name}, _flag = os.{name}, pathlib.Path(__file__).with_name("failed")

def _failing(*arguments):
    if _flag.exists():
        return _{name}(*arguments)
    _flag.touch()
    raise BlockingIOError(11, "Resource temporarily unavailable")

os.{name} = _failing
"""


def below() -> set[int]:
    """The descendants of this process."""
    return {child.pid for child in psutil.Process().children(recursive=True)}


@pytest.mark.parametrize("name", ["fork", "setsid"])
def test_the_next_trial_is_unharmed(tmp_path: Path, name: str) -> None:
    """A trial without a process or a supervisor is lost. Other trials run, and no process is left."""
    project = write_project(tmp_path)
    module = tmp_path / "toy" / "sorting.py"
    module.write_text(module.read_text() + FAILS_ONCE.format(name=name))
    others = below()  # such as the browser that other tests share
    with LocalExecutor(project, project.contract("F-TOY-SORT-001"), tmp_path / "cache") as executor:
        executor.imports()
        assert run(executor, "well").observation.ending.kind is EndingKind.LOST
        assert (tmp_path / "toy" / "failed").exists()
        assert run(executor, "well").observation.ending.kind is EndingKind.COMPLETED
        server = executor._server._process.pid
        deadline = time.monotonic() + 10  # a supervisor writes its last message just before it exits
        while below() - others != {server} and time.monotonic() < deadline:
            time.sleep(0.05)
        assert below() - others == {server}
    assert below() <= others
