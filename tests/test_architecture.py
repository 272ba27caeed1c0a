"""ARCHITECTURE.md names tests and places; all of them exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.conftest import SLOWEST

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "ARCHITECTURE.md").read_text()


def section(title: str) -> str:
    """The text below a heading."""
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows(title: str) -> list[list[str]]:
    """The cells of a section's table, without its head."""
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_it_is_short() -> None:
    """Details belong to the docstrings of modules."""
    assert len(TEXT.split()) <= 1500


NEVER = rows("What may never happen")


def test_what_may_never_happen_is_numbered_without_a_gap() -> None:
    """A lost row is noticed."""
    assert [what.partition(".")[0] for what, _ in NEVER] == [str(number) for number in range(1, 14)]


@pytest.mark.parametrize("row", NEVER, ids=lambda row: row[0][:40])
def test_what_may_never_happen_is_held_by_tests_that_exist(row: list[str]) -> None:
    """Every name is a test in its file. `::name` belongs to the file before it."""
    file, found = "", 0
    for named, name in re.findall(r"`([\w/.]*)::(\w+)`", row[1]):
        file = named or file
        functions = [node.name for node in ast.walk(ast.parse((ROOT / file).read_text())) if hasattr(node, "name")]
        assert name in functions, f"{file} has no {name}"
        found += 1
    assert found == row[1].count("::") > 0


def test_every_part_of_the_harness_has_its_row() -> None:
    """A new module needs a row that says what it is for."""
    named = {Path(name).name for row in rows("Rooms") for name in re.findall(r"`([^`]+)`", row[0])}
    parts = [path for path in (ROOT / "harness").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    assert {path.name for path in parts} - named == set()


@pytest.mark.parametrize("row", rows("Rooms"), ids=lambda row: row[0][:40])
def test_every_room_is_there(row: list[str]) -> None:
    """A name without a folder is beside the first one of its row."""
    beside = Path()
    for name in re.findall(r"`([^`]+)`", row[0]):
        place = Path(name.replace("<family>", "distill"))
        beside = place.parent if len(place.parts) > 1 else beside
        assert (ROOT / place).exists() or (ROOT / beside / place).exists(), name


def test_the_slowest_files_of_tests_are_there() -> None:
    """A renamed file would run last again."""
    assert [name for name in SLOWEST if not (ROOT / "tests" / name).exists()] == []
