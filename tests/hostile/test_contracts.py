"""The commands that read contracts, and the sources and files beside them, with hostile ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.base.vocabulary import ExitStatus
from tests.contracts import document
from tests.evidence.factory import MUTANTS
from tests.hostile.things import DOCUMENTS, THINGS, put
from tests.hostile.world import CLAIM, Case, World, cases

READERS = (("show", CLAIM), ("list",), ("status",), ("status", "-v"))
Change = Callable[[World], Any]


def _changed(**changes: Any) -> Change:
    return lambda world: world.contract.write_text(json.dumps(document(**{"mutants": MUTANTS, **changes})))


def _observed(schema: Any, name: str = "more") -> Change:
    observation = document()["observation"]
    properties = {**observation["properties"], name: schema}
    return _changed(observation={**observation, "properties": properties})


def _ruled(rule: str) -> Change:
    return _changed(rules=[*document()["rules"], {"id": "more", "rule": rule, "message": "no"}])


def _source(content: bytes) -> Change:
    return lambda world: (world.project / "falsifiers" / "demo" / "sorting.py").write_bytes(content)


def _deep(schema: Any, levels: int) -> Any:
    for _ in range(levels):
        schema = {"type": "array", "minItems": 1, "items": schema}
    return schema


REFUSED: dict[str, Change] = {
    **{f"contract: {name}": lambda world, make=make: put(world.contract, make) for name, make in THINGS.items()},
    **{f"contract: {name}": lambda world, make=make: put(world.contract, make) for name, make in DOCUMENTS.items()},
    "an id that leads out": _changed(id="F-../../OUTSIDE-001"),
    "an id of a million characters": _changed(id="F-" + "A" * 1_000_000),
    "a reference to itself": _observed({"$ref": "#/properties/more"}),
    "lists in lists": _observed(_deep({"type": "number"}, 300)),
    "a pattern that runs away": _observed({"type": "string", "maxLength": 10**9, "pattern": "^(a+)+$"}),
    "a list of a thousand million": _observed(
        {"type": "array", "minItems": 10**9, "maxItems": 10**9, "items": {"type": "number"}}
    ),
    "bounds that nothing meets": _observed({"type": "number", "minimum": 3, "maximum": 2}),
    "a bound of 1e400": lambda world: world.contract.write_text(
        json.dumps(document()).replace('"minimum": 0', '"minimum": 1e400')
    ),
    "a rule that is code": _ruled("__import__('os').system('id')"),
    "a rule of a million characters": _ruled("self.given == 3 && " * 60_000 + "true"),
    "a rule in parentheses": _ruled("(" * 20_000 + "true" + ")" * 20_000),
    "a rule of comparisons in lists": _ruled(
        "self.values.all(a, self.values.all(b, self.values.all(c, self.values.all(d, a + b + c + d > 0.0))))"
    ),
    "a rule of texts": _ruled("'a' * 3 == 'b'"),
    "a hundred thousand rules": _changed(
        rules=[{"id": f"r{n}", "rule": "self.given == 3.0", "message": "no"} for n in range(100_000)]
    ),
    "a limit of no seconds": _changed(profiles={"full": {"requires": {"device": "any"}, "limits": {"seconds": 0}}}),
    "a limit of all seconds": _changed(
        profiles={"full": {"requires": {"device": "any"}, "parameters": {}, "limits": {"seconds": 1e308}}}
    ),
    "sources that are a text": _changed(sources="https://example.org"),
    "a source that is no Python": _source(b"def falsify(:"),
    "a source of NUL": _source(bytes(1000)),
    "a source of bad UTF-8": _source(b"# \xff\ndef falsify(trial): pass\n"),
    "a source of parentheses": _source(b"x = " + b"(" * 100_000),
    "a source of signs": _source(b"x = " + b"-" * 1_000_000 + b"1\n"),
    "a source of additions": _source(b"x = " + b"1 + " * 200_000 + b"1\n"),
    **{
        f"source: {name}": lambda world, make=make: put(
            world.project / "falsifiers" / "demo" / "sorting.py", make
        )
        for name, make in THINGS.items()
    },
}  # fmt: skip
"""`harness lint` refuses them, or is undecided."""

BESIDE: dict[str, Change] = {
    **{
        f"{file}: {name}": lambda world, make=make, file=file: put(world.contract.parent / file, make)
        for file, names in (
            ("notes.md", ("a pipe", "an endless device", "600 MB of zeros", "a folder")),
            ("calibration.json", ("a pipe", "an endless device", "a socket", "a folder")),
            ("equivalent.json", ("a pipe", "an endless device", "a link to itself", "a folder")),
            (
                "../../../evidence/planting/demo-0123456.json",
                ("a pipe", "an endless device", "600 MB of zeros", "an unreadable kernel file"),
            ),
        )
        for name, make in ((name, THINGS[name]) for name in names)
    },
    **{
        f"pyproject.toml: {name}": lambda world, make=make: put(world.project / "pyproject.toml", make)
        for name, make in [*THINGS.items(), *DOCUMENTS.items()]
    },
    "a title with escapes": _changed(title="\x1b[2J\u202e PASS"),
    "settings that are a list": lambda world: (world.project / "pyproject.toml").write_text("[[tool.harness]]\n"),
    "a folder of contracts outside": lambda world: (world.project / "pyproject.toml").write_text(
        '[tool.harness]\ncontracts = "/proc"\n'
    ),
    "evidence outside": lambda world: (world.project / "pyproject.toml").write_text(
        '[tool.harness]\nevidence = "../outside"\n'
    ),
    "a project of 3": lambda world: (world.project / "pyproject.toml").write_text("project = 3\n[tool.harness]\n"),
    "a pattern of mentions that runs away": lambda world: (world.project / "pyproject.toml").write_text(
        '[tool.harness.mentions]\npattern = "("\n'
    ),
    "a link to the root among the contracts": lambda world: (world.contract.parent / "root").symlink_to("/"),
    "deep folders of contracts": lambda world: (world.contract.parent / ("d/" * 300)).mkdir(parents=True),
}


@cases(REFUSED, every=30)
def test_contracts(case: Case, quick: bool, world: World) -> None:
    """lint names the file; the other commands do not fail badly."""
    case.change(world)
    done = world.run("lint")
    assert done.returncode in (ExitStatus.REFUSED, ExitStatus.NOT_MEASURED), done.stdout
    first = sum(map(ord, case.name)) % len(READERS)
    for arguments in (READERS[first], READERS[(first + 3) % len(READERS)]):
        assert "1 DISCHARGED" not in world.run(*arguments).stdout


@cases(BESIDE, every=30)
def test_files_beside_contracts(case: Case, quick: bool, world: World) -> None:
    case.change(world)
    first = sum(map(ord, case.name)) % len(READERS)
    for arguments in (("lint",), READERS[first], ("report", "evidence", "--html", "site")):
        world.run(*arguments)
    assert Path(world.folder / "outside" / "file").read_text() == "left alone\n"
