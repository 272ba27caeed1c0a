"""Ids of claims in a project's files."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from harness.contract import mentions as _mentions
from harness.contract.mentions import mentions
from harness.contract.project import Project
from tests.contracts import write_project


def test_in_a_repository_git_lists_the_files(project: Project) -> None:
    """Each file is listed once, tracked or not.

    Files that git ignores are left out, and so are names that are not plain text.
    """
    subprocess.run(["git", "init", "-q"], cwd=project.root, check=True)
    (project.root / "SPEC.md").write_text("F-DEMO-LOST-002")
    subprocess.run(["git", "add", "SPEC.md"], cwd=project.root, check=True)
    (project.root / "SPEC.md").write_text("first\nF-DEMO-LOST-002 again F-DEMO-LOST-002\n")
    (project.root / "new.md").write_text("F-DEMO-LOST-002")
    (project.root / "na\u00efve.md").write_text("F-DEMO-LOST-002")
    (project.root / "two\nlines.md").write_text("F-DEMO-LOST-002")
    (project.root / "left-out.md").write_text("F-DEMO-LOST-002")
    (project.root / ".gitignore").write_text("left-out.md")
    found = mentions(project)
    assert found["F-DEMO-LOST-002"] == ["SPEC.md:2", "SPEC.md:2", "na\u00efve.md:1", "new.md:1"]


def test_without_git_all_files_are_searched(project: Project) -> None:
    """The evidence, the schemas, and folders whose name begins with a dot are left out at every depth."""
    folders = [".hidden", "a/.hidden", "a/evidence", project.evidence, project.schemas, project.evidence / "F-1"]
    for folder in folders:
        (project.root / folder).mkdir(parents=True, exist_ok=True)
        (project.root / folder / "SPEC.md").write_text("F-DEMO-LOST-002")
    (project.root / ".dotted.md").write_text("F-DEMO-LOST-002")
    found = mentions(project)
    assert found["F-DEMO-LOST-002"] == [".dotted.md:1", "a/evidence/SPEC.md:1"]


def test_only_text_of_a_hand_is_searched(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Text files up to the largest size are searched. A larger file, a binary and a link are not."""
    monkeypatch.setattr(_mentions, "_LARGEST", 9_000)
    text = b"F-DEMO-LOST-002"
    contents = {
        "largest": text.ljust(9_000),
        "larger": text.ljust(9_001),
        "binary": text + b"\0".rjust(8192 - len(text)),
        "late": text + b"\0".rjust(8193 - len(text)),
    }
    for name, content in contents.items():
        (project.root / f"{name}.md").write_bytes(content)
    (project.root / "link.md").symlink_to("largest.md")
    os.mkfifo(project.root / "pipe.md")
    assert mentions(project)["F-DEMO-LOST-002"] == ["largest.md:1", "late.md:1"]


def test_what_is_excluded_hides_no_other(tmp_path: Path) -> None:
    """An exclusion applies to files and folders by pattern, and to ids. It hides no other mention."""
    root = write_project(tmp_path)
    (root / "pyproject.toml").write_text('[tool.harness.mentions]\nexclude = ["A*", "docs", "F-DEMO-X-*"]\n')
    (root / "docs/more").mkdir(parents=True)
    for name in ("A.md", "B.md", "docs/C.md", "docs/more/D.md", "E.md"):
        (root / name).write_text("F-DEMO-LOST-002 F-DEMO-X-001")
    found = mentions(Project.find(root))
    assert found["F-DEMO-LOST-002"] == ["B.md:1", "E.md:1"]
    assert "F-DEMO-X-001" not in found


def test_an_id_is_a_whole_word(project: Project) -> None:
    """Only whole words are ids. The ids are sorted."""
    words = "F-DEMO-LOST-003 F-DEMO-LOST-002, xF-DEMO-LOST-004 F-DEMO-LOST-005_ F-DEMO-LOST-006-1 (F-DEMO-LOST-007)"
    (project.root / "SPEC.md").write_text(words)
    lost = [identifier for identifier in mentions(project) if "LOST" in identifier]
    assert lost == ["F-DEMO-LOST-002", "F-DEMO-LOST-003", "F-DEMO-LOST-007"]
