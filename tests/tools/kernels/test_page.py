"""docs/kernels.md: the way from a kernel to a proven claim is followed to the letter, and its tables are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.test_tutorial import Command, File, follow, steps

PAGE = (Path(__file__).parents[3] / "docs" / "kernels.md").read_text(encoding="utf-8")
GUIDE = PAGE.partition("## From the first line")[2].partition("\n## ")[0]


def test_a_kernel_becomes_a_proven_claim(tmp_path: Path) -> None:
    """Every command of the page does what it says, in an empty folder."""
    pytest.importorskip("triton")
    folder = tmp_path / "project"
    folder.mkdir()
    follow(GUIDE, folder, tmp_path, CUDA_VISIBLE_DEVICES="")


def test_the_page_is_understood() -> None:
    """The test finds every file and every command."""
    found = list(steps(GUIDE))
    assert [part.path for part in found if isinstance(part, File)] == re.findall(r"Put this into\s+(\S+):", GUIDE)
    assert len([part for part in found if isinstance(part, Command)]) == GUIDE.count("\n$ ")


def test_every_relation_and_every_method_is_explained() -> None:
    """The tables name what the code has."""
    from harness.authoring.tensor_function import RELATIONS, Draw

    table = PAGE.partition("## What is tried")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE)) != set()
    named = {name for row in re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert named == set(RELATIONS)
    methods = {name for name in vars(Draw) if not name.startswith("_")}
    assert set(re.findall(r"^\| `(\w+)\(", PAGE, re.MULTILINE)) == methods
