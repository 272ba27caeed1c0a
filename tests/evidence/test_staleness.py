"""A bundle covers what digests and history show, and nothing else."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from harness.base.vocabulary import Verdict
from harness.contract.project import Project
from harness.evidence.findings import STALE, Code, Severity
from harness.evidence.staleness import ProjectState, clock_ahead, coverage, staleness
from harness.evidence.verification import verify
from harness.judging.record import Record
from harness.machine import provenance
from harness.tools.planting.scores import unplanted
from tests.contracts import IDENTIFIER, put
from tests.evidence.factory import claim_result, rewrite, sealed, set_at

CLAIM = "F-DEMO-SORT-001"
FILES = {
    "falsifiers/__init__.py": "",
    "falsifiers/demo/__init__.py": "",
    "falsifiers/demo/falsify.py": "from falsifiers.demo.checks import held_out\nimport falsifiers.demo.protocol\n",
    "falsifiers/demo/checks.py": "",
    "falsifiers/demo/protocol.py": "",
    "falsifiers/demo/reference/__init__.py": "from .sorter import Sorter\nfrom falsifiers.demo.protocol import Sorts\n",
    "falsifiers/demo/reference/sorter.py": "def late():\n    from ..reference import kernel\n",
    "falsifiers/demo/reference/kernel.py": "",
    "falsifiers/demo/mutants.py": "from falsifiers.demo import reference\nimport falsifiers.demo.defects\n",
    "falsifiers/demo/defects.py": "",
    "falsifiers/demo/by_name.py": "",
}
ENTRY_POINTS = {
    "falsifier": "falsifiers.demo.falsify:falsify",
    "subject": "falsifiers.demo.reference:Sorter",
}


def git(root: Path, *words: str) -> str:
    """Git's output."""
    identity = ["-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(
        ["git", "-C", str(root), *identity, *words], check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project under git, with the sources above."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "pyproject.toml").write_text("[tool.harness]\n")
    (tmp_path / "contracts").mkdir()
    put(tmp_path / "contracts" / CLAIM / "contract.json", "{}")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    return tmp_path


def record_of(root: Path, **changes: Any) -> Record:
    """A record of a full run of the project as it is now, on the claim's target."""
    fresh = {
        **ENTRY_POINTS,
        "profile": "full",
        "contract_digest": digest(root / "contracts" / CLAIM / "contract.json"),
        "sources": {name: digest(root / name) for name in FILES},
        "commit": {"revision": git(root, "rev-parse", "HEAD"), "dirty": False, "reason": None},
        "harness": provenance.harness_identity(),
        "target": {},
    }
    return replace(claim_result(root / "elsewhere").record, **{**fresh, **changes})


def digest(path: Path) -> str:
    """sha256, lower-case hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def codes(record: Record, root: Path) -> set[Code]:
    """The codes of all findings."""
    found = (*coverage(record, ENTRY_POINTS["subject"]), *staleness(record, ProjectState(Project.find(root))))
    assert all(finding.code.severity is Severity.REMARK for finding in found)
    return {finding.code for finding in found}


def test_a_run_of_the_project_as_it_is_covers_it(root: Path) -> None:
    """Touching every file changes nothing, nor does a commit that changes none of the sources."""
    record = record_of(root)
    for name in FILES:
        os.utime(root / name, (1, 1))
    (root / "NEWS.md").write_text("news\n")
    git(root, "add", ".")
    git(root, "commit", "-qm", "second")
    assert codes(record, root) == set()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("falsifiers/demo/falsify.py", {Code.STALE_FALSIFIER}),
        ("falsifiers/demo/checks.py", {Code.STALE_FALSIFIER}),
        ("falsifiers/demo/protocol.py", {Code.STALE_FALSIFIER, Code.STALE_SUBJECT}),
        ("falsifiers/demo/__init__.py", {Code.STALE_FALSIFIER, Code.STALE_SUBJECT}),
        ("falsifiers/demo/reference/__init__.py", {Code.STALE_SUBJECT}),
        ("falsifiers/demo/reference/sorter.py", {Code.STALE_SUBJECT}),
        ("falsifiers/demo/reference/kernel.py", {Code.STALE_SUBJECT}),
        ("falsifiers/demo/mutants.py", {Code.STALE_FALSIFIER}),
        ("falsifiers/demo/defects.py", {Code.STALE_FALSIFIER}),
        ("falsifiers/demo/by_name.py", {Code.STALE_FALSIFIER}),
    ],
)
def test_a_changed_source_is_stale_for_what_uses_it(root: Path, name: str, expected: set[Code]) -> None:
    """The bundle is fresh again if the change is undone."""
    record = record_of(root)
    with (root / name).open("a") as file:
        file.write("# more\n")
    assert codes(record, root) == expected
    (root / name).write_text(FILES[name])
    assert codes(record, root) == set()
    (root / name).unlink()
    assert codes(record, root) & STALE


def test_a_contract_that_was_changed_moved_or_removed(root: Path) -> None:
    """The bytes of the contract count, and its place does not."""
    record, path = record_of(root), root / "contracts" / CLAIM / "contract.json"
    path.write_text("{ }")
    assert codes(record, root) == {Code.STALE_CONTRACT}
    path.unlink()
    moved = put(root / "contracts" / "demo" / CLAIM / "contract.json", "{}")
    assert codes(record, root) == set()
    path.write_text("{}")
    assert codes(record, root) == {Code.STALE_CONTRACT}  # two contracts of one claim are none
    path.unlink()
    moved.unlink()
    assert codes(record, root) == {Code.STALE_CONTRACT}


def test_a_commit_that_led_nowhere(root: Path) -> None:
    """A commit of another branch, an unknown commit and none each have a remark."""
    git(root, "checkout", "-qb", "other")
    git(root, "commit", "-qm", "aside", "--allow-empty")
    record = record_of(root)
    assert codes(record, root) == set()
    git(root, "checkout", "-q", "-")
    assert codes(record, root) == {Code.COMMIT_NOT_IN_HISTORY}
    git(root, "merge", "-q", "--no-ff", "-m", "merge", "other")
    assert codes(record, root) == set()
    for revision, dirty in (("0" * 40, False), (None, None)):
        commit = {"revision": revision, "dirty": dirty, "reason": "no git"}
        assert Code.COMMIT_NOT_IN_HISTORY in codes(record_of(root, commit=commit), root)


def test_a_shallow_clone_cannot_tell(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The remark says that history is missing, with the remedy, and claims nothing else."""
    record = record_of(root)
    git(root, "commit", "-qm", "second", "--allow-empty")
    clone = tmp_path_factory.mktemp("clone") / "shallow"
    git(root, "clone", "-q", "--depth", "1", f"file://{root}", str(clone))
    (finding,) = staleness(record, ProjectState(Project.find(clone)))
    assert finding.code is Code.COMMIT_NOT_IN_HISTORY
    assert "--unshallow" in finding.fields["text"]


def test_a_repository_without_commits_cannot_tell(root: Path, snapshot: SnapshotAssertion) -> None:
    """The text is the harness's own, because git's message is about git's command line."""
    record = record_of(root)
    shutil.rmtree(root / ".git")
    git(root, "init", "-q")
    (finding,) = staleness(record, ProjectState(Project.find(root)))
    assert finding.code is Code.COMMIT_NOT_IN_HISTORY
    assert finding.fields["text"].removeprefix(record.commit["revision"][:12]) == snapshot


def test_a_project_without_git_cannot_tell(root: Path) -> None:
    """The reason quotes git's message."""
    record = record_of(root)
    (root / ".git").rename(root / "git")
    (finding,) = staleness(record, ProjectState(Project.find(root)))
    assert finding.code is Code.COMMIT_NOT_IN_HISTORY
    assert "not a git repository" in finding.fields["text"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"profile": "reduced"}, Code.REDUCED_PROFILE),
        ({"mutants_skipped": True}, Code.MUTANTS_SKIPPED),
        ({"overrides": {"steps": 5}}, Code.OVERRIDDEN),
        ({"subject": "falsifiers.demo.reference.sorter:Sorter"}, Code.OTHER_SUBJECT),
        ({"target": {"device": "NVIDIA GB10"}}, Code.WRONG_TARGET),
        ({"target": {"compute_capability": "12.1"}}, Code.WRONG_TARGET),
        ({"harness": {"version": "0.1.0", "sha256": "b" * 64}}, Code.OTHER_HARNESS),
        ({"harness": {"version": "0.1.0"}}, Code.OTHER_HARNESS),
    ],
)
def test_every_way_of_covering_less(root: Path, changes: dict[str, Any], expected: Code) -> None:
    """Each way of covering less has its remark."""
    assert codes(record_of(root, **changes), root) == {expected}


@pytest.mark.parametrize("dirty", [True, None])
def test_a_tree_that_was_not_clean_for_certain_is_dirty(root: Path, dirty: bool | None) -> None:
    """An unknown state counts as dirty."""
    commit = {"revision": git(root, "rev-parse", "HEAD"), "dirty": dirty, "reason": None}
    assert codes(record_of(root, commit=commit), root) == {Code.DIRTY_TREE}


def test_a_record_that_lists_no_sources_shows_nothing(root: Path) -> None:
    """Such a record has a remark, unless the run measured nothing."""
    record = record_of(root, sources={})
    assert codes(record, root) == {Code.STALE_FALSIFIER, Code.STALE_SUBJECT}
    assert codes(replace(record, verdict=Verdict.NOT_MEASURED), root) == set()


@pytest.mark.parametrize(
    "name", ["/etc/hostname", "../outside.py", "falsifiers/../../outside.py", "a\0b", "pipe", ".", "\ud800"]
)
def test_a_listed_source_is_looked_for_inside_the_project_alone(root: Path, name: str) -> None:
    """The path of a source can lead out of the project, or to a pipe. Neither is read."""
    (root.parent / "outside.py").write_text("")
    os.mkfifo(root / "pipe")
    assert ProjectState(Project.find(root)).source_digest(name) is None


@pytest.mark.parametrize(
    "name", ["/etc/passwd:x", "..:x", "a/b:x", "\0:x", ":", "falsifiers.demo.gone:x", "a" * 5000, "a." * 10**6]
)
def test_an_entry_point_that_leads_nowhere_uses_nothing(root: Path, name: str) -> None:
    """The entry point uses no source, whatever the source contains."""
    assert ProjectState(Project.find(root)).uses(name, IDENTIFIER) <= {
        "falsifiers/__init__.py",
        "falsifiers/demo/__init__.py",
    }


def test_a_source_that_is_no_python_any_more_is_stale_and_nothing_worse(root: Path) -> None:
    """The source is stale, although its imports cannot be read."""
    record = record_of(root)
    (root / "falsifiers/demo/reference/__init__.py").write_text("def (:\n")
    assert codes(record, root) == {Code.STALE_SUBJECT}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changed=st.sets(st.sampled_from(sorted(FILES)), min_size=1))
def test_no_changed_source_goes_unmentioned(root: Path, changed: set[str]) -> None:
    """Each finding names the files, or the number of further ones."""
    record = record_of(root)
    try:
        for name in changed:
            (root / name).write_text(FILES[name] + "# more\n")
        found = [remark for remark in staleness(record, ProjectState(Project.find(root))) if remark.code in STALE]
        named = {name for finding in found for name in finding.fields["names"]}
        assert named == changed or (named < changed and any(finding.fields["more"] for finding in found))
    finally:
        for name in changed:
            (root / name).write_text(FILES[name])


def campaign(root: Path, *left_out: str, obstacle: str | None = None) -> None:
    """Write the planting score of the claim, for its sources as they are now."""
    claim = {"id": CLAIM, "profile": "full", "obstacle": obstacle, "defects": 1, "seconds": 1.0, "unmatched": []}
    counts = dict.fromkeys(("killed", "survived", "not_measured", "not_started", "equivalent", "untried"), 0)
    document = {
        "format": 1, "seed": 0, "found": 1, "interrupted": False, "claims": [claim],
        "sources": {name: digest(root / name) for name in FILES if name not in left_out},
        "total": {"name": "all", **counts, "score": None}, "operators": [], "files": [], "defects": [],
    }  # fmt: skip
    put(root / "evidence" / "planting" / "contracts-0123456.json", json.dumps(document))


def test_a_subject_without_a_planting_score(root: Path) -> None:
    """The score counts if it was measured on the subject's sources; changes of the falsifier make no difference."""
    record = record_of(root)

    def remarks() -> list[str]:
        found = list(unplanted(record, ProjectState(Project.find(root))))
        assert all((finding.code, finding.code.severity) == (Code.UNPLANTED, Severity.REMARK) for finding in found)
        return [finding.pointer for finding in found]

    assert remarks() == ["/subject"]
    campaign(root, "falsifiers/demo/checks.py")
    assert (remarks(), Project.find(root).files()) == ([], [root / "contracts" / CLAIM / "contract.json"])
    campaign(root, "falsifiers/demo/reference/sorter.py")
    assert remarks() == ["/sources"]
    (root / "falsifiers/demo/protocol.py").write_text("# since the run\n")
    campaign(root)
    assert remarks() == ["/sources"]
    campaign(root, obstacle="no GPU")
    assert remarks() == ["/subject"]
    put(root / "evidence" / "planting" / "contracts-0123456.json", "{}")
    assert remarks() == ["/subject"]


NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def test_it_is_sound_and_says_so(tmp_path: Path) -> None:
    """The bundle is sound with a remark, because the files do not show which clock was wrong."""
    bundle = sealed(tmp_path)
    assert Code.CLOCK_AHEAD not in {remark.code for remark in verify(bundle).remarks}
    rewrite(bundle, "record.json", set_at("started", (datetime.now(UTC) + timedelta(days=3650)).isoformat()))
    verification = verify(bundle)
    assert verification.sound, verification.findings
    (remark,) = (remark for remark in verification.remarks if remark.code is Code.CLOCK_AHEAD)
    assert (remark.file, remark.pointer) == ("record.json", "/started")


@pytest.mark.parametrize(
    ("started", "ahead"),
    [
        ("2026-11-21T12:59:59+00:00", False),
        ("2026-11-21T13:00:00+00:00", False),
        ("2026-11-21T13:00:01+00:00", True),
        ("2026-11-21T13:00:01Z", True),
        ("9999-12-31T23:59:59Z", True),
        ("2026-11-20T12:00:00+00:00", False),
        ("2036-99-99T99:99:99Z", False),  # not a time: that has its own finding
    ],
)
def test_clocks_may_differ_by_an_hour(tmp_path: Path, started: str, ahead: bool) -> None:
    """A smaller difference gives no remark."""
    record = replace(claim_result(tmp_path).record, started=started, seconds=0.0)
    assert [remark.code for remark in clock_ahead(record, NOW)] == [Code.CLOCK_AHEAD] * ahead
