"""Forged events and bundles of a job. None gives a PASS."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.base.vocabulary import ExitStatus, Verdict, exit_status
from harness.contract.project import Project
from harness.machine.host import probe
from harness.running import compose, events
from harness.running.request import RunRequest
from harness.tools.slurm import dispatcher, executor
from harness.tools.slurm.judged_bundle import NAME
from harness.tools.slurm.submission import Submission
from tests.cli.harness_command import harness
from tests.contracts import put
from tests.evidence.factory import reseal, rewrite, set_at
from tests.execution.projects import write_project

CLAIM, OTHER, RUN = "F-TOY-SORT-001", "F-TOY-OTHER-001", "2026-01-01T000000Z-aaaaaa"
PLACE = Path("evidence/TOY-1") / CLAIM


@pytest.fixture(scope="module")
def passed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with three PASS bundles: of the run, of an earlier run, and of another claim of the run."""
    folder = tmp_path_factory.mktemp("passed")
    write_project(folder)
    contract = json.loads((folder / "contracts" / CLAIM / "contract.json").read_text())
    put(folder / "contracts" / OTHER / "contract.json", json.dumps({**contract, "id": OTHER}))
    with pytest.MonkeyPatch.context() as patch:
        for name, claims in ((RUN, (CLAIM, OTHER)), ("an-earlier-run", (CLAIM,))):
            patch.setenv(NAME, name)
            done = harness(folder, "run", *claims, "-q")
            assert done.returncode == ExitStatus.PASS, done.stdout + done.stderr
    return folder


class Forgery:
    """A copy of the project, and a job of RUN that prints what a test writes."""

    def __init__(self, folder: Path, output: Path) -> None:
        self.folder, self.output = folder, output
        of = {
            json.loads((bundle / "environment.json").read_text())["variables"][NAME]: bundle
            for bundle in self.bundles()
        }
        self.bundle, self.earlier = of[RUN], of["an-earlier-run"]
        (self.other,) = (folder / "evidence" / "TOY-1" / OTHER).iterdir()

    def bundles(self) -> list[Path]:
        return sorted((self.folder / PLACE).iterdir())

    def sealed(self) -> list[str]:
        """The names of all folders below the evidence."""
        return sorted(str(path) for path in (self.folder / "evidence" / "TOY-1").rglob("*") if path.is_dir())

    def tell(self, *lines: str | dict[str, Any]) -> None:
        """Write events."""
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        self.output.write_text("".join(f"{line}\n" for line in texts))

    def ended(self, run: str | None = None, **changes: Any) -> dict[str, Any]:
        """The event of the end of the claim."""
        name = self.bundle.name if run is None else run
        return {"event": "ClaimEnded", "id": CLAIM, "run": name, "unsealed": "", **changes}

    def run(self) -> tuple[events.RunFinished, list[events.Event]]:
        """Run the claim as a job, and return what the client hears. A claim without a bundle is not sealed here."""
        project = Project.find(self.folder)
        request = RunRequest([project.contract(CLAIM)], executor="slurm")
        heard: list[events.Event] = []
        runner = compose.compose(project, probe(self.folder), request, lambda result: None, heard.append, str)
        return runner.run(request), heard


@pytest.fixture
def forgery(passed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Forgery:
    tools, output = tmp_path / "bin", tmp_path / "output"
    tools.mkdir()
    for name in ("srun", "squeue", "scancel", "sinfo"):  # a Slurm whose job has ended at once
        (tools / name).write_text(f"#!/bin/sh\ncat '{output}'\n" if name == "srun" else "#!/bin/sh\n")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(executor, "Submission", partial(Submission, name=RUN))
    monkeypatch.setattr(dispatcher, "_VISIBLE_SECONDS", 0.2)
    shutil.copytree(passed, tmp_path / "project", symlinks=True)
    return Forgery(tmp_path / "project", output)


def test_the_verdict_is_that_of_the_bundle(forgery: Forgery) -> None:
    """The bundle is judged again, and no further one is sealed."""
    forgery.tell(forgery.ended())
    before = forgery.bundles()
    finished, _ = forgery.run()
    assert [record.verdict for record in finished.records] == [Verdict.PASS]
    assert forgery.bundles() == before


def unlinked(forgery: Forgery, make: Callable[[Path], object], name: str = "record.json") -> None:
    (forgery.bundle / name).unlink()
    make(forgery.bundle / name)


def elsewhere(forgery: Forgery, place: Path) -> None:
    """Move a folder out of the evidence, and link to it."""
    moved = forgery.folder / "moved"
    place.rename(moved)
    place.symlink_to(moved)


def renamed(forgery: Forgery, to: str) -> dict[str, Any]:
    forgery.bundle.rename(forgery.bundle.with_name(to))
    return forgery.ended(to)


def copied(forgery: Forgery, source: Path, **record: str) -> dict[str, Any]:
    """Put another bundle in the place of the bundle, with fields of its record replaced."""
    shutil.rmtree(forgery.bundle)
    shutil.copytree(source, forgery.bundle)
    rewrite(forgery.bundle, "record.json", lambda document: {**document, **record})
    return forgery.ended()


def edited(name: str, *steps: Any) -> Callable[[Forgery], Any]:
    """Change a file of the bundle, with a new manifest."""
    return lambda forgery: rewrite(forgery.bundle, name, set_at(*steps))


def raw(name: str, content: bytes) -> Callable[[Forgery], Any]:
    """Replace a file of the bundle, with a new manifest."""

    def change(forgery: Forgery) -> None:
        (forgery.bundle / name).write_bytes(content)
        reseal(forgery.bundle)

    return change


def huge(forgery: Forgery) -> None:
    os.truncate(forgery.bundle / "record.json", 1 << 40)


def fails_with_the_words_of_a_pass(forgery: Forgery) -> None:
    """Edit the measurements, so that the record's PASS contradicts them."""

    def change(document: dict[str, Any]) -> None:
        document["measurements"] = {}

    rewrite(forgery.bundle, "observation.json", change)


def finished(forgery: Forgery, bundle: Any) -> dict[str, Any]:
    """The event that an earlier version took a verdict from."""
    record = json.loads((forgery.bundle / "record.json").read_text())
    return {"event": "ClaimFinished", "record": record, "bundle": bundle, "ratios": {}, "unsealed": ""}


def trial(forgery: Forgery) -> dict[str, Any]:
    judgment = {"outcome": "PASS", "clauses": [], "reason": None, "unjudged": []}
    event = {"id": CLAIM, "trial": "subject", "judgment": judgment, "mutant": None, "seconds": 1.0, "traceback": ""}
    return {"event": "TrialFinished", **event}


FORGERIES: dict[str, Callable[[Forgery], Any]] = {
    "no event": lambda forgery: [],
    "finished, no bundle": lambda forgery: finished(forgery, None),
    "finished, /etc": lambda forgery: finished(forgery, "/etc"),
    "finished, its bundle": lambda forgery: finished(forgery, str(forgery.bundle)),
    "a trial that passes": trial,
    "no such bundle": lambda forgery: forgery.ended("2026-01-01T000000Z-cpu-000000"),
    "no name": lambda forgery: forgery.ended(""),
    "this folder": lambda forgery: forgery.ended("."),
    "the folder above": lambda forgery: forgery.ended(".."),
    "/etc": lambda forgery: forgery.ended("/etc"),
    "a way out": lambda forgery: forgery.ended(f"../{OTHER}/{forgery.other.name}"),
    "NUL": lambda forgery: forgery.ended("a\0b"),
    "half a surrogate pair": lambda forgery: forgery.ended("\udc80"),
    "a long name": lambda forgery: forgery.ended("a" * 100_000),
    "no text": lambda forgery: {**forgery.ended(), "run": 7},
    "no run": lambda forgery: {"event": "ClaimEnded", "id": CLAIM},
    "one field more": lambda forgery: forgery.ended(verdict="PASS"),
    "capital letters": lambda forgery: forgery.ended(forgery.bundle.name.upper()),
    "said to be unsealed": lambda forgery: forgery.ended(unsealed="it passed"),
    "another claim's event": lambda forgery: forgery.ended(forgery.other.name, id=OTHER),
    "another claim's bundle": lambda forgery: forgery.ended(forgery.other.name),
    "another claim's bundle, copied": lambda forgery: copied(forgery, forgery.other),
    "another claim's bundle, copied and renamed": lambda forgery: copied(
        forgery, forgery.other, id=CLAIM, run=forgery.bundle.name
    ),
    "an earlier run": lambda forgery: forgery.ended(forgery.earlier.name),
    "an earlier run, copied": lambda forgery: copied(forgery, forgery.earlier),
    "an earlier run, copied and renamed": lambda forgery: copied(forgery, forgery.earlier, run=forgery.bundle.name),
    "an earlier run after the end": lambda forgery: [forgery.ended(), forgery.ended(forgery.earlier.name)],
    "no such bundle after the end": lambda forgery: [forgery.ended(), forgery.ended("gone"), forgery.ended("gone")],
    "renamed": lambda forgery: renamed(forgery, "renamed"),
    "unfinished": lambda forgery: renamed(forgery, f".unfinished-{forgery.bundle.name}"),
    "a linked bundle": lambda forgery: elsewhere(forgery, forgery.bundle),
    "a linked claim": lambda forgery: elsewhere(forgery, forgery.bundle.parent),
    "a linked issue": lambda forgery: elsewhere(forgery, forgery.bundle.parent.parent),
    "a file": lambda forgery: (shutil.rmtree(forgery.bundle), forgery.bundle.write_text("PASS"), None)[-1],
    "a pipe": lambda forgery: (shutil.rmtree(forgery.bundle), os.mkfifo(forgery.bundle), None)[-1],
    "an empty folder": lambda forgery: (shutil.rmtree(forgery.bundle), forgery.bundle.mkdir(), None)[-1],
    "record: a pipe": lambda forgery: unlinked(forgery, os.mkfifo),
    "record: a link": lambda forgery: unlinked(forgery, lambda path: path.symlink_to(forgery.earlier / "record.json")),
    "record: /dev/zero": lambda forgery: unlinked(forgery, lambda path: path.symlink_to("/dev/zero")),
    "record: a terabyte": huge,
    "record: deep": raw("record.json", b"[" * 1_000_000),
    "manifest: gone": lambda forgery: unlinked(forgery, str, "MANIFEST.sha256"),
    "observation: nothing measured": fails_with_the_words_of_a_pass,
    "a byte changed": lambda forgery: (forgery.bundle / "environment.json").open("a").write("\n"),
    "environment: another run": edited("environment.json", "variables", NAME, "another"),
    "output: garbage": lambda forgery: forgery.output.write_bytes(b"\xff\x00" * 1000 + b"\n"),
    "output: deep": lambda forgery: forgery.tell(f'"{CLAIM}"' + "[" * 1_000_000),
    "output: cut short": lambda forgery: forgery.output.write_text(json.dumps(forgery.ended())[:-5]),
}


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES)
def test_no_forgery_passes(forgery: Forgery, forge: Callable[[Forgery], Any]) -> None:
    """The claim is NOT_MEASURED, without a trial, and nothing is sealed."""
    told = forge(forgery)
    if not os.path.lexists(forgery.output):
        lines = told if isinstance(told, list) else [told if isinstance(told, dict) else forgery.ended()]
        forgery.tell(*lines)
    before = forgery.sealed()
    finished, heard = forgery.run()
    (record,) = finished.records
    assert exit_status([record.verdict]) == ExitStatus.NOT_MEASURED
    assert not record.proven
    assert not any(isinstance(event, events.TrialFinished) for event in heard)
    assert forgery.sealed() == before
