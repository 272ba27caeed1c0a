"""`harness attach` and `harness runs` with forged events and bundles. None gives a PASS or exit status 0."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.base.vocabulary import ExitStatus
from harness.cli.run_options import RunOptions
from harness.running.slurm.judged_bundle import NAME
from tests.cli.harness_command import harness
from tests.evidence.factory import reseal, rewrite, set_at
from tests.execution.projects import write_project

CLAIM, OTHER, RUN = "F-TOY-SORT-001", "F-TOY-OTHER-001", "2026-01-01T000000Z-aaaaaa"
PLACE = Path("evidence/TOY-1") / CLAIM


@pytest.fixture(scope="module")
def passed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with three PASS bundles: of the run, of an earlier run, and of another claim of the run."""
    folder = tmp_path_factory.mktemp("passed")
    write_project(folder)
    contract = json.loads((folder / "contracts" / f"{CLAIM}.json").read_text())
    (folder / "contracts" / f"{OTHER}.json").write_text(json.dumps({**contract, "id": OTHER}))
    with pytest.MonkeyPatch.context() as patch:
        for name, claims in ((RUN, (CLAIM, OTHER)), ("an-earlier-run", (CLAIM,))):
            patch.setenv(NAME, name)
            done = harness(folder, "run", *claims, "-q")
            assert done.returncode == ExitStatus.PASS, done.stdout + done.stderr
    return folder


class Forgery:
    """A copy of the project, whose run file and events a test writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        of = {json.loads((one / "environment.json").read_text())["variables"][NAME]: one for one in self.bundles()}
        self.bundle, self.earlier = of[RUN], of["an-earlier-run"]
        (self.other,) = (folder / "evidence" / "TOY-1" / OTHER).iterdir()
        self.runs = folder / "evidence" / ".runs"
        self.runs.mkdir()
        self.options: dict[str, Any] = RunOptions(ids=(CLAIM,), executor="slurm", detach=True).to_json()
        self.file = self.runs / "7_0.events"

    def bundles(self) -> list[Path]:
        return sorted((self.folder / PLACE).iterdir())

    def sealed(self) -> list[str]:
        """The names of all folders below the evidence."""
        return sorted(str(one) for one in (self.folder / "evidence" / "TOY-1").rglob("*") if one.is_dir())

    def tell(self, *lines: str | dict[str, Any]) -> None:
        """Write events."""
        told = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        self.file.write_text("".join(f"{line}\n" for line in told))

    def ended(self, run: str | None = None, **changes: Any) -> dict[str, Any]:
        """The event of the end of the claim."""
        name = self.bundle.name if run is None else run
        return {"event": "ClaimEnded", "id": CLAIM, "run": name, "unsealed": "", **changes}

    def attached(self) -> Any:
        run = {"name": RUN, "submitted": "", "options": self.options, "jobs": {"7": [[CLAIM]]}}
        (self.runs / f"{RUN}.json").write_text(json.dumps(run))
        return harness(self.folder, "attach", seconds=60)


@pytest.fixture
def forgery(passed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Forgery:
    tools = tmp_path / "bin"
    tools.mkdir()
    git = shutil.which("git")
    assert git is not None
    (tools / "git").symlink_to(git)
    for name in ("srun", "sbatch", "squeue", "sacct", "scancel", "sinfo"):  # a Slurm that knows no job any more
        (tools / name).write_text("#!/bin/sh\n")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tools))
    shutil.copytree(passed, tmp_path / "project", symlinks=True)
    return Forgery(tmp_path / "project")


@pytest.mark.parametrize("executor", ["slurm", "local"])
def test_a_run_is_followed_and_not_run_again(forgery: Forgery, executor: str) -> None:
    """The verdict is that of the bundle, and no further bundle is sealed, whatever the run file says."""
    for client in (forgery.folder.parent / "bin").glob("s*"):
        client.unlink()
    forgery.options.update(executor=executor, detach=executor == "slurm")
    forgery.tell(forgery.ended())
    before = forgery.bundles()
    done = forgery.attached()
    assert done.returncode == ExitStatus.PASS, done.stdout + done.stderr
    assert "1 evaluated: 1 PASS" in done.stdout
    assert forgery.bundles() == before
    assert "1 PASS" in harness(forgery.folder, "runs").stdout


@pytest.mark.parametrize("has_slurm", [True, False])
def test_a_run_without_an_end_is_never_sealed(forgery: Forgery, has_slurm: bool) -> None:
    """Each time, the claim is NOT_MEASURED without a bundle: Slurm has forgotten the job, or there is no Slurm."""
    if not has_slurm:
        for client in (forgery.folder.parent / "bin").glob("s*"):
            client.unlink()
    before = forgery.sealed()
    for _ in range(2):
        done = forgery.attached()
        assert done.returncode == ExitStatus.NOT_MEASURED, done.stdout + done.stderr
        assert "no bundle was written" in done.stdout
        assert forgery.sealed() == before


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
    told = {"id": CLAIM, "trial": "subject", "judgment": judgment, "mutant": None, "seconds": 1.0, "traceback": ""}
    return {"event": "TrialFinished", **told}


FORGERIES: dict[str, Callable[[Forgery], Any]] = {
    "no event": lambda one: [],
    "finished, no bundle": lambda one: finished(one, None),
    "finished, /etc": lambda one: finished(one, "/etc"),
    "finished, its bundle": lambda one: finished(one, str(one.bundle)),
    "a trial that passes": trial,
    "no such bundle": lambda one: one.ended("2026-01-01T000000Z-cpu-000000"),
    "no name": lambda one: one.ended(""),
    "this folder": lambda one: one.ended("."),
    "the folder above": lambda one: one.ended(".."),
    "/etc": lambda one: one.ended("/etc"),
    "a way out": lambda one: one.ended(f"../{OTHER}/{one.other.name}"),
    "NUL": lambda one: one.ended("a\0b"),
    "half a surrogate pair": lambda one: one.ended("\udc80"),
    "a long name": lambda one: one.ended("a" * 100_000),
    "no text": lambda one: {**one.ended(), "run": 7},
    "no run": lambda one: {"event": "ClaimEnded", "id": CLAIM},
    "one field more": lambda one: one.ended(verdict="PASS"),
    "capital letters": lambda one: one.ended(one.bundle.name.upper()),
    "said to be unsealed": lambda one: one.ended(unsealed="it passed"),
    "another claim's event": lambda one: one.ended(one.other.name, id=OTHER),
    "another claim's bundle": lambda one: one.ended(one.other.name),
    "another claim's bundle, copied": lambda one: copied(one, one.other),
    "another claim's bundle, copied and renamed": lambda one: copied(one, one.other, id=CLAIM, run=one.bundle.name),
    "an earlier run": lambda one: one.ended(one.earlier.name),
    "an earlier run, copied": lambda one: copied(one, one.earlier),
    "an earlier run, copied and renamed": lambda one: copied(one, one.earlier, run=one.bundle.name),
    "an earlier run after the end": lambda one: [one.ended(), one.ended(one.earlier.name)],
    "no such bundle after the end": lambda one: [one.ended(), one.ended("gone"), one.ended("gone")],
    "renamed": lambda one: renamed(one, "renamed"),
    "unfinished": lambda one: renamed(one, f".unfinished-{one.bundle.name}"),
    "a linked bundle": lambda one: elsewhere(one, one.bundle),
    "a linked claim": lambda one: elsewhere(one, one.bundle.parent),
    "a linked issue": lambda one: elsewhere(one, one.bundle.parent.parent),
    "a file": lambda one: (shutil.rmtree(one.bundle), one.bundle.write_text("PASS"), None)[-1],
    "a pipe": lambda one: (shutil.rmtree(one.bundle), os.mkfifo(one.bundle), None)[-1],
    "an empty folder": lambda one: (shutil.rmtree(one.bundle), one.bundle.mkdir(), None)[-1],
    "record: a pipe": lambda one: unlinked(one, os.mkfifo),
    "record: a link": lambda one: unlinked(one, lambda path: path.symlink_to(one.earlier / "record.json")),
    "record: /dev/zero": lambda one: unlinked(one, lambda path: path.symlink_to("/dev/zero")),
    "record: a folder": lambda one: unlinked(one, Path.mkdir),
    "record: gone": lambda one: unlinked(one, str),
    "record: a terabyte": huge,
    "record: garbage": raw("record.json", b"\xff\x00{"),
    "record: deep": raw("record.json", b"[" * 1_000_000),
    "record: a long integer": raw("record.json", b"9" * 1_000_000),
    "record: NaN": edited("record.json", "seconds", float("nan")),
    "record: another title": edited("record.json", "title", "easier"),
    "record: other overrides": edited("record.json", "overrides", {"items": 1}),
    "record: another seed": edited("record.json", "seed", 5),
    "manifest: gone": lambda one: unlinked(one, str, "MANIFEST.sha256"),
    "manifest: a pipe": lambda one: unlinked(one, os.mkfifo, "MANIFEST.sha256"),
    "observation: nothing measured": fails_with_the_words_of_a_pass,
    "observation: NaN": raw("observation.json", b'{"measurements": NaN}'),
    "contract: easier": edited("contract.json", "rules", []),
    "mutants: none": raw("mutants.jsonl", b""),
    "a byte changed": lambda one: (one.bundle / "environment.json").open("a").write("\n"),
    "a file added": lambda one: (one.bundle / "notes").write_text("PASS"),
    "environment: another run": edited("environment.json", "variables", NAME, "another"),
    "events: a pipe": lambda one: os.mkfifo(one.file),
    "events: a device": lambda one: one.file.symlink_to("/dev/zero"),
    "events: a folder": lambda one: one.file.mkdir(),
    "events: a terabyte": lambda one: (one.file.touch(), os.truncate(one.file, 1 << 40)),
    "events: garbage": lambda one: one.file.write_bytes(b"\xff\x00" * 1000 + b"\n"),
    "events: deep": lambda one: one.tell(f'"{CLAIM}"' + "[" * 1_000_000),
    "events: cut short": lambda one: one.file.write_text(json.dumps(one.ended())[:-5]),
}


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES)
def test_no_forgery_passes(forgery: Forgery, forge: Callable[[Forgery], Any]) -> None:
    """The claim is NOT_MEASURED, or the command refuses: in time, with words, and without a trial."""
    told = forge(forgery)
    if not (os.path.lexists(forgery.file)):
        lines = told if isinstance(told, list) else [told if isinstance(told, dict) else forgery.ended()]
        forgery.tell(*lines)
    before = forgery.sealed()
    done = forgery.attached()
    shown = done.stdout + done.stderr
    assert done.returncode in (ExitStatus.NOT_MEASURED, ExitStatus.REFUSED), shown
    assert "PASS  F-TOY" not in shown
    assert "0 PASS" in done.stdout or done.returncode == ExitStatus.REFUSED
    assert "Traceback" not in shown
    assert forgery.sealed() == before
    listed = harness(forgery.folder, "runs", seconds=60)
    assert "PASS" not in listed.stdout
    assert "Traceback" not in listed.stderr
