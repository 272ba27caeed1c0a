"""docs/tutorial.md, followed to the letter: its files are written, its commands run, its outputs compared.

A fenced block `console` holds commands, each after a `$`, and below each its whole output. In an output `…` stands for
any text, and a line of `…` for any lines. `console exit=3` gives the exit status of the block's last command. A block
whose info string is a path is written to that path.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.harness_command import harness

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"^```(?P<language>\w+) ?(?P<rest>.*)\n(?P<body>(?:.*\n)*?)^```$", re.MULTILINE)


@dataclass(frozen=True)
class Command:
    """A shell command, the output that the page promises, and how it ends."""

    text: str
    output: str
    status: int


@dataclass(frozen=True)
class File:
    """A file that the reader writes."""

    path: str
    text: str


def steps(page: str) -> Iterator[Command | File]:
    """The steps of the page, in order."""
    for block in _BLOCK.finditer(page):
        if "/" in block["rest"]:
            yield File(block["rest"], block["body"])
        elif block["language"] == "console":
            _, *texts = re.split(r"^\$ ", block["body"], flags=re.MULTILINE)
            last = int(block["rest"].removeprefix("exit=") or 0)
            for number, text in enumerate(texts, start=1):
                command, _, output = text.partition("\n")
                yield Command(command, output, last if number == len(texts) else 0)


def promised(output: str, real: str) -> bool:
    """Whether the output of a command is what the page shows."""
    lines = (
        r"(?:.*\n)*" if line == "…" else re.escape(line).replace("…", ".*") + r"\n" for line in output.splitlines()
    )
    return re.fullmatch("".join(lines), real) is not None


def clone(folder: Path) -> None:
    """Make the parts of a clone that the tutorial touches."""
    for name in ("contracts", "falsifiers", "harness", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)


def new_project(folder: Path) -> None:
    """Make a project of a reader's own, with the default settings of every tool."""
    assert harness(folder, "init").returncode == 0


def follow(page: str, folder: Path, scratch: Path, *, fills_in: bool = False, **variables: str) -> None:
    """Do each step of a page in a folder, with the caches in another one. Each command says what the page says.

    Args:
        fills_in: whether each file that the page has exists before.
    """
    places = {"HARNESS_CACHE_DIR": str(scratch / "cache"), "HARNESS_LEASE_DIR": str(scratch / "leases")}
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    environment = {**os.environ, **places, "PATH": path, "NO_COLOR": "1", **variables}
    for step in steps(page):
        if isinstance(step, File):
            assert (folder / step.path).is_file() or not fills_in, f"the page fills in {step.path}, which is not there"
            (folder / step.path).write_text(step.text, encoding="utf-8")
            continue
        command, both = ["bash", "-c", step.text], subprocess.STDOUT
        done = subprocess.run(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=both, text=True, timeout=280
        )
        assert done.returncode == step.status, f"$ {step.text}\n{done.stdout}"
        assert promised(step.output, done.stdout), f"$ {step.text}\n{done.stdout}\nand not\n{step.output}"


@pytest.mark.parametrize("make", [clone, new_project])
def test_a_claim_in_ten_minutes(
    make: Callable[[Path], None], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Every step of the tutorial does what it says, and at the end the project is as it was."""
    make(tmp_path)
    before = sorted(item for item in tmp_path.rglob("*.*") if item.is_file())
    follow(PAGE, tmp_path, tmp_path_factory.mktemp("scratch"), fills_in=True, PYTHONDONTWRITEBYTECODE="1")
    caches = (".pytest_cache", ".ruff_cache")
    left = sorted(item for item in tmp_path.rglob("*.*") if item.is_file() and not set(caches) & set(item.parts))
    assert left == before


def test_the_page_is_understood() -> None:
    """The test finds each file to write and every command, as a reader does."""
    found = list(steps(PAGE))
    files = [step.path for step in found if isinstance(step, File)]
    assert files == re.findall(r"[Pp]ut this into\s+(\S+):", PAGE)
    assert len(files) == 4
    assert len([step for step in found if isinstance(step, Command)]) == PAGE.count("\n$ ")
