"""Run the tests of the module in which the working tree differs from its commit: Cosmic Ray's test command.

Exits with 0 if they pass, which is a mutant that survives, and with 1 if one fails.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

POOL = ("contract", "judging", "evidence", "lint", "search", "run")
"""Folders of tests/ where a module's tests are looked for."""


def select(tree: Path, module: str) -> list[str]:
    """The files whose tests may notice a defect in a module such as "harness/judging/judge.py", the likeliest first.

    These are the files that are named after the module, those that import it, and the others of its package.
    """
    _, package, file = Path(module).parts
    name, imported = Path(file).stem, re.compile(rf"\bharness\.{package}\.{Path(file).stem}\b")
    ranks: dict[Path, int] = {}
    for path in sorted(one for folder in POOL for one in (tree / "tests" / folder).glob("test_*.py")):
        if path.parent.name == package and path.stem.startswith(f"test_{name}"):
            ranks[path] = 0
        elif imported.search(path.read_text(encoding="utf-8")):
            ranks[path] = 1
        elif path.parent.name == package:
            ranks[path] = 2
    return [path.relative_to(tree).as_posix() for path in sorted(ranks, key=lambda path: ranks[path])]


def main() -> int:
    tree = Path.cwd()
    diff = subprocess.run(["git", "diff", "--name-only", "--", "harness"], capture_output=True, text=True, check=True)
    (module,) = diff.stdout.split()
    # The random cases are the same each time, and a run leaves nothing behind that another one could read.
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-seed=0"]
    command = [sys.executable, "-m", "pytest", *options, *select(tree, module)]
    return int(subprocess.run(command, env={**os.environ, "PYTHONPATH": str(tree)}).returncode != 0)


if __name__ == "__main__":
    sys.exit(main())
