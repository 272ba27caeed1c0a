"""`harness trainer check` with hostile descriptions, runs and logs of trainers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.base.vocabulary import ExitStatus
from tests.hostile.things import DOCUMENTS, THINGS, put
from tests.hostile.world import Case, World, cases

HEALTHY = (Path(__file__).parents[1] / "tools" / "trainer" / "bigrams.toml").read_text()
_LOG = b"it 1/2 kd=3.0 lr=0.1\nit 2/2 kd=2.0 lr=0.1\ndone: 2 its\n"
Change = Callable[[World], Any]


def _file(world: World) -> Path:
    return world.project / "some.toml"


def _written(before: str = "", **replaced: str) -> Change:
    def change(world: World) -> None:
        text = HEALTHY
        for old, new in replaced.items():
            text = "\n".join(new if line.startswith(old) else line for line in text.splitlines())
        _file(world).write_text(before + text)

    return change


def _pattern(text: str) -> Change:
    return lambda world: _file(world).write_text(HEALTHY.replace("^saved (?P<path>.+)$", text))


REFUSED: dict[str, Change] = {
    **{f"trainer: {name}": lambda world, make=make: put(_file(world), make) for name, make in THINGS.items()},
    **{f"trainer: {name}": lambda world, make=make: put(_file(world), make) for name, make in DOCUMENTS.items()},
    "dotted keys": lambda world: _file(world).write_text("a." * 400_000 + "b = 1"),
    "tables in tables": lambda world: _file(world).write_text("a = " + "{b = " * 50_000),
    "a date that is none": _written("when = 9999-99-99\n"),
    "an unknown key": _written("rm = true\n"),
    "a pattern that runs away": _pattern(r"^saved (?P<path>(a+)+)\1$"),
    "a pattern of a million groups": _pattern("(" * 100_000 + ")" * 100_000),
    "a pattern of repetitions": _pattern("((((a{1,1000}){1,1000}){1,1000}){1,1000})(?P<path>x)"),
    "a name of numbers": _written(name="name = 3"),
    "parameters that name each other": _written(
        teacher='teacher = "{student}"', student='student = "{teacher}"\nx = {}'
    ),
}

LOGS: dict[str, Change] = {
    **{f"log: {name}": lambda world, make=make: put(world.project / "some.log", make) for name, make in THINGS.items()},
    **{
        f"log: {name}": lambda world, make=make: put(world.project / "some.log", make)
        for name, make in DOCUMENTS.items()
    },
    "log: a line of 20 MB": lambda world: (world.project / "some.log").write_bytes(b"it 1/2 kd=" + b"9" * (20 << 20)),
    "log: 300,000 lines": lambda world: (world.project / "some.log").write_bytes(_LOG * 100_000),
    "log: numbers that do not fit": lambda world: (world.project / "some.log").write_bytes(
        b"it 99999999999999999999999999/2 kd=1e999 lr=nan\n" * 1000
    ),
    "log: a path that leads out": lambda world: (world.project / "some.log").write_bytes(
        _LOG + b"saved ../../../../../etc/passwd\nsaved /dev/zero\n"
    ),
}

RUNS: dict[str, Change] = {
    f"run: {name} as {file}": lambda world, make=make, file=file: put(world.project / "run" / file, make)
    for file, names in (
        ("train.log", ("a pipe", "an endless device", "a folder", "600 MB of zeros")),
        ("final.pt", ("a pipe", "an endless device", "a socket", "17 MB of text", "a link to itself")),
        ("model_1.pt", ("a pipe", "an unreadable kernel file", "a terminal")),
    )
    for name, make in ((name, THINGS[name]) for name in names)
}


@cases(REFUSED, every=20)
def test_descriptions(case: Case, quick: bool, world: World) -> None:
    """The file is named."""
    case.change(world)
    done = world.run("trainer", "check", "some.toml")
    assert done.returncode == ExitStatus.REFUSED, done.stdout
    assert "some.toml" in done.stderr
    world.run("run", "F-DEMO-SORT-001", "--subject", "command:some.toml", "--scratch")


@cases(LOGS, every=20)
def test_logs(case: Case, quick: bool, world: World) -> None:
    """What is no log matches nothing."""
    _file(world).write_text(HEALTHY)
    case.change(world)
    world.run("trainer", "check", "some.toml", "--log", "some.log")


@cases(RUNS, every=10)
def test_runs(case: Case, quick: bool, world: World) -> None:
    _file(world).write_text(HEALTHY)
    case.change(world)
    (world.project / "run").mkdir(exist_ok=True)
    world.run("trainer", "check", "some.toml", "--run", "run")
