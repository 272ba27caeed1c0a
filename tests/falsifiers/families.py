"""The families of falsifiers whose tests have passed with the present sources.

    python -m tests.falsifiers.families [FAMILY …]

runs the tests of the families, by default of all, and writes the digests of those that pass to `passed.json`. `pytest`
skips a family with the same digest; `pytest --families all`, or naming a path in `tests/falsifiers`, skips none.

A digest covers all files that decide the result: the falsifiers, contracts and tests of the family, what they name of
other families, the pinned libraries, the trainers, and the packages of the harness that falsifiers and their trials
import. Those above them (reports, command line, runs, evidence) have tests of their own.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PASSED = Path(__file__).parent / "passed.json"
FAMILIES = sorted(path.parent.name for path in ROOT.glob("falsifiers/*/__init__.py"))
_ALWAYS = ("constraints.txt", "contracts/schema", "falsifiers/__init__.py", "harness/__init__.py", "trainers")
_NAMED = re.compile(
    r"""(?:^\s*(?:from|import)\s+|["'])(harness(?:\.tools)?|falsifiers|tests\.falsifiers|tests\.tools\.trainer|tests\.tools)\.(\w+)""",
    re.MULTILINE,
)
"""What a file imports, or names in a string."""


def digest(family: str) -> str:
    """The sha256 over the names and contents of all files that decide the result of a family's tests."""
    above = _above_falsifiers()
    pending = [ROOT / "harness" / "execution", ROOT / "contracts" / family]
    pending += [path for path in ROOT.glob("tests/tools/trainer/*.*") if path.is_file() and path.name[:5] != "test_"]
    pending += [ROOT / place / family for place in ("falsifiers", "tests/falsifiers")]
    pending += [ROOT / name for name in _ALWAYS]
    seen: set[Path] = set()
    lines: set[str] = set()
    while pending:
        place = pending.pop()
        if place not in seen:
            seen.add(place)
            said, names = contents(place)
            lines.update(said)
            named = [ROOT / of.replace(".", "/") / name for of, name in names - above]
            pending += [candidate for path in named for candidate in (path, path.with_suffix(".py"))]
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


@cache
def contents(place: Path) -> tuple[list[str], set[tuple[str, str]]]:
    """The digests of a file, or of all files below a folder, and the packages that its Python files name."""
    lines, names = [], set[tuple[str, str]]()
    for path in place.rglob("*") if place.is_dir() else [place]:
        if path.is_file() and "__pycache__" not in path.parts:
            content = path.read_bytes()
            lines.append(f"{path.relative_to(ROOT)} {hashlib.sha256(content).hexdigest()}")
            names.update(_NAMED.findall(content.decode()) if path.suffix == ".py" else ())
    return lines, names


def _above_falsifiers() -> set[tuple[str, str]]:
    """The packages of the harness that no trial imports: evidence, and the layers above it."""
    layers = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]["layers"]
    upper = layers[: layers.index("evidence") + 1]
    return {("harness", name) for layer in upper for name in layer.split(" | ")}


def passed() -> dict[str, str]:
    """The digests with which the families passed, by family."""
    return json.loads(PASSED.read_text()) if PASSED.exists() else {}


def has_passed(family: str) -> bool:
    """Whether the tests of the family passed with the present sources. Never on a machine with a GPU."""
    return not any(Path("/dev").glob("nvidia[0-9]*")) and passed().get(family) == digest(family)


def main() -> int:
    """Run the tests of families, and write which passed. Returns an exit status."""
    failed = []
    for family in sys.argv[1:] or FAMILIES:
        contents.cache_clear()
        before = digest(family)
        command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", f"tests/falsifiers/{family}"]
        status = subprocess.run(command, cwd=ROOT).returncode
        contents.cache_clear()
        if status or digest(family) != before:
            failed.append(family)
        else:
            PASSED.write_text(json.dumps({**passed(), family: before}, indent=2, sort_keys=True) + "\n")
    print(f"failed: {', '.join(failed)}" if failed else f"all passed; see {PASSED.relative_to(ROOT)}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
