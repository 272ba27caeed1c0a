"""A family is tested again if a file that decides its result has changed, and only then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.falsifiers import families


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A checkout with two families."""
    for name, text in {
        "constraints.txt": "torch==2.8",
        "contracts/one/F.json": "{}",
        "contracts/two/F.json": "{}",
        "falsifiers/one/__init__.py": "import harness.report\nfrom harness.tools.probe import memory",
        "falsifiers/two/__init__.py": "from falsifiers.one import x",
        "harness/authoring/trial.py": "",
        "harness/execution/worker.py": "from harness.authoring import trial",
        "harness/tools/probe/memory.py": "",
        "harness/report/page.py": "",
        "pyproject.toml": (families.ROOT / "pyproject.toml").read_text(),
        "tests/falsifiers/one/test_it.py": "import tests.falsifiers.helper",
        "tests/falsifiers/helper.py": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(families, "ROOT", tmp_path)
    families.contents.cache_clear()
    yield tmp_path
    families.contents.cache_clear()


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("constraints.txt", "one two"),
        ("contracts/one/F.json", "one"),
        ("falsifiers/one/new.cu", "one two"),
        ("falsifiers/two/__init__.py", "two"),
        ("harness/authoring/trial.py", "one two"),
        ("harness/tools/probe/memory.py", "one two"),
        ("harness/report/page.py", ""),
        ("tests/falsifiers/helper.py", "one"),
    ],
)
def test_a_changed_file_changes_the_digests_of_its_families(project: Path, name: str, changed: str) -> None:
    before = {family: families.digest(family) for family in ("one", "two")}
    (project / name).write_text("changed")
    families.contents.cache_clear()
    assert [family for family in before if families.digest(family) != before[family]] == changed.split()
