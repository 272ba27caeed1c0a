"""The oracle shares no code with the subjects that it judges."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[4]
ORACLE = ROOT / "falsifiers" / "distill" / "oracle"


def modules_of(source: Path) -> Iterator[str]:
    """The modules that a file imports, also in functions. `from a import b` counts as `a` and `a.b`."""
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{source}: a relative import hides what it imports"
            yield from (node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names))


def reached(sources: list[Path]) -> set[str]:
    """All modules of this repository's falsifiers that the files import, directly or through others."""
    found: set[str] = set()
    while sources:
        for name in modules_of(sources.pop()):
            path = ROOT / name.replace(".", "/")
            source = next((one for one in (path.with_suffix(".py"), path / "__init__.py") if one.is_file()), None)
            if name.startswith("falsifiers.") and source and name not in found:
                found.add(name)
                sources.append(source)
    return found


def test_the_oracle_reaches_no_subject() -> None:
    """The oracle may import the Protocol.

    It imports neither the reference nor a mutant, directly or through another module.
    """
    found = reached(sorted(ORACLE.glob("*.py")))
    assert "falsifiers.distill.subject" in found
    assert [name for name in sorted(found) if {"reference", "mutants"} & set(name.split("."))] == []
