"""Every command that reads bundles, with forged, broken and misplaced ones."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.base.vocabulary import ExitStatus
from tests.evidence.factory import reseal, rewrite, set_at
from tests.hostile.things import DOCUMENTS, THINGS, put
from tests.hostile.world import CLAIM, ISSUE, PASSED, Case, World, cases

FILES = ("record.json", "contract.json", "observation.json", "environment.json", "mutants.jsonl", "MANIFEST.sha256")
READERS: tuple[tuple[str, ...], ...] = (
    ("report", "evidence", "--markdown", "-"),
    ("report", "evidence", "--html", "site"),
    ("merge", "evidence", "--into", "merged"),
    ("replay", f"evidence/{ISSUE}/{CLAIM}/{PASSED}"),
    ("status",),
    ("list",),
)
"""Each case meets two of them."""

Change = Callable[[World], Any]


def _thing(name: str, make: Callable[[Path], object]) -> Change:
    return lambda world: put(world.passed / name, make)


def _document(name: str, make: Callable[[Path], object]) -> Change:
    def change(world: World) -> None:
        put(world.passed / name, make)
        if name != "MANIFEST.sha256":
            reseal(world.passed)

    return change


def _set(name: str, *steps: Any) -> Change:
    """Change one value of the PASS bundle."""
    return lambda world: rewrite(world.passed, name, set_at(*steps))


def _forged(**record: Any) -> Change:
    """Let the FAIL bundle say PASS, and put it in the place of the PASS bundle."""

    def change(world: World) -> None:
        shutil.rmtree(world.passed)
        shutil.move(world.failed, world.passed)
        said = {"run": PASSED, "verdict": "PASS", "reason": None, "proven": True, **record}
        rewrite(world.passed, "record.json", lambda document: {**document, **said})

    return change


def _forged_clauses(world: World) -> None:
    _forged()(world)
    record = json.loads((world.passed / "record.json").read_text())
    for clause in record["clauses"]:
        clause["outcome"] = "PASS"
    rewrite(world.passed, "record.json", lambda document: {**document, "clauses": record["clauses"]})


def _manifest(change: Callable[[str], str]) -> Change:
    def write(world: World) -> None:
        place = world.passed / "MANIFEST.sha256"
        place.write_bytes(change(place.read_text()).encode("utf-8", "surrogateescape"))

    return write


def _line(name: str) -> Change:
    return _manifest(lambda text: f"{text}{'0' * 64}  {name}\n")


def _mutants(change: Callable[[dict[str, Any]], Any]) -> Change:
    return lambda world: rewrite(world.passed, "mutants.jsonl", change)


def _moved(to: str) -> Change:
    def change(world: World) -> None:
        place = world.evidence / to
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(world.passed, place)

    return change


def _linked(steps: int) -> Change:
    """Move the bundle, or a folder above it, outside, and link to it."""

    def change(world: World) -> None:
        place = [world.passed, *world.passed.parents][steps]
        shutil.move(place, world.folder / "outside" / "moved")
        place.symlink_to(world.folder / "outside" / "moved")

    return change


def _added(name: str, make: Callable[[Path], object]) -> Change:
    return lambda world: put(world.passed / name, make)


def _swapped(name: str) -> Change:
    """Take a file of the FAIL bundle."""

    def change(world: World) -> None:
        shutil.copy(world.failed / name, world.passed / name)
        reseal(world.passed)

    return change


UNSOUND: dict[str, Change] = {
    **{
        f"{FILES[number % 6]}: {name}": _thing(FILES[number % 6], make)
        for number, (name, make) in enumerate(THINGS.items())
    },
    **{
        f"{FILES[number % 6]}: {name}": _document(FILES[number % 6], make)
        for number, (name, make) in enumerate(DOCUMENTS.items())
    },
    "trials.log: a pipe": _thing("trials.log", THINGS["a pipe"]),
    "metrics.csv: random bytes": _document("metrics.csv", DOCUMENTS["random bytes"]),
    "telemetry.csv: deep lists": _document("telemetry.csv", DOCUMENTS["deep lists"]),
    "PASS for FAIL": _forged(),
    "PASS for FAIL, with its clauses": _forged_clauses,
    "PASS for FAIL, without clauses": _forged(clauses=[]),
    "PASS for FAIL, in full": _forged(profile="full"),
    "PASS for FAIL, judged by a harness to come": _forged(harness={"version": "99", "sha256": "b" * 64}),
    "PASS for FAIL, with an unknown key": _forged(note="it is right"),
    "PASS for FAIL, with the observation of the PASS": lambda world: (
        _swapped("record.json")(world), rewrite(world.passed, "record.json", set_at("verdict", "PASS"))
    ),
    "a measurement of another type": _set("observation.json", "measurements", "returned", True),
    "a list without end": _set("observation.json", "measurements", "values", [1.0] * 300_000),
    "another subject": _set("observation.json", "subject", "os:system"),
    "a subject that ended badly": _set("observation.json", "ending", "kind", "raised"),
    "no mutants": _mutants(lambda lines: {}),
    "a mutant that passes": _mutants(
        lambda lines: lines["forgets-one"]["observation"]["measurements"].update(returned=3)
    ),
    "a record of two hundred thousand clauses": _set("record.json", "clauses", [{}] * 200_000),
    "a record of a hundred thousand unknown keys": lambda world: rewrite(
        world.passed, "record.json", lambda document: {**document, **{f"k{n}": n for n in range(100_000)}}
    ),
    "a mutant that the record calls killed": _set("record.json", "mutants", 2, "fate", "killed"),
    "an unproven PASS that is called proven": _set("record.json", "mutants_skipped", True),
    "another device": _set("record.json", "device", {"kind": "cuda", "name": "NVIDIA GB10"}),
    "a claim that leads out": _set("record.json", "id", "../../outside"),
    "a run that leads out": _set("record.json", "run", "../../../../outside/run"),
    "a contract with a pattern that runs away": _set("contract.json", "id", "F-" + "A" * 200_000),
    "a contract with a huge list": _set("contract.json", "observation", "properties", "values", "minItems", 10**9),
    "the observation of the FAIL": _swapped("observation.json"),
    "the record of the FAIL": _swapped("record.json"),
    "the mutants of no run": _document("mutants.jsonl", lambda path: path.write_bytes(b"{}\n" * 100_000)),
    "a manifest that leads out": _line("../../../../outside/file"),
    "a manifest with an absolute path": _line("/etc/passwd"),
    "a manifest with a device": _line("/dev/zero"),
    "a manifest of a hundred thousand lines": _manifest(
        lambda text: text + "".join(f"{'0' * 64}  artifacts/{number}\n" for number in range(100_000))
    ),
    "a manifest with escapes": _line("\x1b[2J\x1b]0;title\x07"),
    "a pipe more": _added("artifacts/pipe", THINGS["a pipe"]),
    "a link more": _added("artifacts/link", lambda path: path.symlink_to("/etc/passwd")),
    "a counterexample that is none": _document("counterexample.json", lambda path: path.write_text('{"case": 1}')),
    "a bundle in a bundle": lambda world: shutil.copytree(world.failed, world.passed / "artifacts" / "inner"),
    "the folder of another issue": _moved(f"DEMO-2/{CLAIM}/{PASSED}"),
    "a name with a line end": _moved(f"{ISSUE}/{CLAIM}/two\nlines"),
    "a name of bad UTF-8": _moved(f"{ISSUE}/{CLAIM}/half\udcff"),
    "an unfinished one": _moved(f"{ISSUE}/{CLAIM}/.unfinished-{PASSED}~1-1-00000000"),
}  # fmt: skip

NOT_THERE: dict[str, Change] = {
    "a link to the bundle": _linked(0),
    "a link to the claim": _linked(1),
    "a link to the issue": _linked(2),
    "a folder that cannot be listed": lambda world: put(world.evidence / "pipe", THINGS["a pipe"]),
    "a device beside": lambda world: put(world.evidence / ISSUE / "zero", THINGS["an endless device"]),
    "a file in the place of the claim": lambda world: (
        shutil.rmtree(world.passed.parent), world.passed.parent.write_text("PASS")
    ),
    "deep folders": lambda world: (world.evidence / "/".join("d" * 200)).mkdir(parents=True),
}  # fmt: skip


def _readers(case: Case) -> tuple[tuple[str, ...], ...]:
    first = sum(map(ord, case.name)) % len(READERS)
    return READERS[first], READERS[(first + 4) % len(READERS)]


@cases(UNSOUND, every=32)
def test_unsound_bundles(case: Case, quick: bool, world: World) -> None:
    """`harness verify` refuses, no command fails badly, and none takes it for evidence of a PASS."""
    case.change(world)
    done = world.run("verify", "evidence")
    assert done.returncode == ExitStatus.REFUSED, done.stdout
    for arguments in _readers(case):
        read = world.run(*arguments)
        gates = arguments[0] in ("report", "merge")
        assert not gates or read.returncode == ExitStatus.REFUSED, (arguments, read.stdout, read.stderr)
        assert "1 DISCHARGED" not in read.stdout


@cases(NOT_THERE, every=7)
def test_places_of_bundles(case: Case, quick: bool, world: World) -> None:
    """What is not in its place is not read."""
    case.change(world)
    world.run("verify", "evidence")
    for arguments in _readers(case):
        world.run(*arguments)
