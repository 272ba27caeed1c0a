"""Ids of claims in a project's files."""

from __future__ import annotations

import subprocess

from harness.contract.mentions import mentions
from harness.contract.project import Project


def test_in_a_repository_git_lists_the_files(project: Project) -> None:
    """Each file once, tracked or not; what git ignores is left out, and so is a name that git quotes."""
    subprocess.run(["git", "init", "-q"], cwd=project.root, check=True)
    (project.root / "SPEC.md").write_text("F-DEMO-LOST-002")
    subprocess.run(["git", "add", "SPEC.md"], cwd=project.root, check=True)
    (project.root / "SPEC.md").write_text("first\nF-DEMO-LOST-002 again F-DEMO-LOST-002\n")
    (project.root / "new.md").write_text("F-DEMO-LOST-002")
    (project.root / "na\u00efve.md").write_text("F-DEMO-LOST-002")
    (project.root / "left-out.md").write_text("F-DEMO-LOST-002")
    (project.root / ".gitignore").write_text("left-out.md")
    found = mentions(project)
    assert found["F-DEMO-LOST-002"] == ["SPEC.md:2", "SPEC.md:2", "new.md:1"]
