"""Verifying finds every change to the files of a bundle."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.base.vocabulary import Verdict
from harness.evidence import bundle_layout
from harness.evidence.findings import Code
from harness.evidence.verification import find_bundles, verify
from tests.evidence.factory import copy_of, files_of, found, reseal

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("in_this_process")


def test_a_sound_bundle_says_what_it_said(bundle: Path) -> None:
    """The verdict comes from judging again."""
    verification = verify(bundle)
    assert verification.findings == ()
    assert verification.sound
    assert (verification.verdict, verification.proven) == (Verdict.PASS, True)
    assert (verification.issue, verification.id, verification.run) == bundle.parts[-3:]
    assert (verification.profile, verification.device) == ("reduced", "cpu a CPU")
    assert verification.mutants == {
        "forgets-one": "killed",
        "stops-early": "killed",
        "silent-fallback": "not run",
    }


# Files


def test_every_removed_file_is_missed(pristine: Path, tmp_path: Path) -> None:
    """Each file is removed once, and the finding names it."""
    for number, name in enumerate(files_of(pristine)):
        bundle = copy_of(pristine, tmp_path / str(number))
        (bundle / name).unlink()
        code = Code.INCOMPLETE if name == "MANIFEST.sha256" else Code.TAMPERED
        assert (code, name) in found(verify(bundle)), name


def test_every_changed_file_is_noticed(pristine: Path, tmp_path: Path) -> None:
    """Each file gets one byte more at its end."""
    for number, name in enumerate(files_of(pristine)):
        bundle = copy_of(pristine, tmp_path / str(number))
        with (bundle / name).open("ab") as file:
            file.write(b"\n")
        code = Code.INVALID if name == "MANIFEST.sha256" else Code.TAMPERED
        assert (code, name) in found(verify(bundle)), name


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_flipped_byte_of_any_file_is_noticed(pristine: Path, data: st.DataObject) -> None:
    """No byte of a bundle is without meaning."""
    names = [name for name in files_of(pristine) if (pristine / name).stat().st_size]
    path = pristine / data.draw(st.sampled_from(names))
    content = path.read_bytes()
    place = data.draw(st.integers(0, len(content) - 1))
    flipped = content[place] ^ data.draw(st.integers(1, 255))
    path.write_bytes(content[:place] + bytes([flipped]) + content[place + 1 :])
    try:
        assert not verify(pristine).sound
    finally:
        path.write_bytes(content)


@pytest.mark.parametrize("name", ["notes.txt", "report.html", ".hidden", "artifacts/more.bin", "a\nb"])
def test_an_added_file_is_noticed(bundle: Path, name: str) -> None:
    """An added file is noticed at any place."""
    (bundle / name).write_text("x")
    assert (Code.TAMPERED, name) in found(verify(bundle))


def test_a_bundle_of_which_nothing_is_left_is_no_bundle(bundle: Path) -> None:
    """If it is named, it is incomplete."""
    shutil.rmtree(bundle)
    assert [finding.code for finding in verify(bundle).findings] == [Code.INCOMPLETE]
    bundle.mkdir()
    assert (Code.INCOMPLETE, "record.json") in found(verify(bundle))


@pytest.mark.parametrize("name", bundle_layout.REQUIRED)
def test_missing_from_the_manifest_too(bundle: Path, name: str) -> None:
    """A file that every bundle has is missed, even if no manifest lists it."""
    (bundle / name).unlink()
    reseal(bundle)
    assert found(verify(bundle)) == {(Code.INCOMPLETE, name)}


@pytest.mark.parametrize(("field", "depth"), [("run", 1), ("id", 2), ("issue", 3)])
def test_a_bundle_in_anothers_place_is_noticed(bundle: Path, field: str, depth: int) -> None:
    """The names of its folders must agree with its record."""
    folder = bundle.parents[depth - 1] / bundle.name if depth > 1 else bundle
    folder = [bundle, bundle.parent, bundle.parent.parent][depth - 1]
    moved = folder.rename(folder.with_name("F-DEMO-OTHER-001"))
    inside = moved.joinpath(*bundle.relative_to(folder).parts)
    findings = verify(inside).findings
    assert [(finding.code, finding.pointer) for finding in findings] == [(Code.REJUDGED_DIFFERENTLY, f"/{field}")]


# Formats


@pytest.mark.parametrize(
    ("name", "content", "pointer"),
    [
        ("record.json", "{", ""),
        ("record.json", "[]", ""),
        ("record.json", '{"format": 1}', "/format"),
        ("record.json", '{"format": 3}', "/format"),
        ("environment.json", '{"host": {}, "software": {}, "variables": {}, "more": 1}', "/more"),
        ("observation.json", '{"a": 1, "a": 2}', "/a"),
        ("observation.json", '{"a": NaN}', "/a"),
        ("contract.json", "{}", ""),
        ("mutants.jsonl", "{", ""),
        ("mutants.jsonl", "{}\n", "/0"),
        ("mutants.jsonl", '{"id": "../x"}\n', "/0"),
        ("mutants.jsonl", '{"id": "forgets-one", "more": 1}\n', "/forgets-one/more"),
        ("mutants.jsonl", "\n", "/0"),
        ("trials.log", "hello\n", ""),
        ("trials.log", "==> subject stdout: 6 bytes, sha256 " + "0" * 64 + "; 7 follow\nhello\n", ""),
        ("artifacts/INDEX.json", "{}", ""),
        ("artifacts/INDEX.json", '{"artifacts": [], "omitted": 0}', ""),
        ("metrics.csv", "", ""),
        ("metrics.csv", "seconds,step\n", ""),
        ("metrics.csv", "step,seconds\n1\n", ""),
        ("metrics.csv", "step,seconds\none,2\n", ""),
        ("metrics.csv", "step,seconds,a,a\n", ""),
        ("telemetry.csv", 'seconds\n"', ""),
        ("telemetry.csv", "seconds\n" + "9" * 200_000, ""),
    ],
)
def test_every_format_is_checked(bundle: Path, name: str, content: str, pointer: str) -> None:
    """The finding has the file and the place in it."""
    (bundle / name).write_text(content)
    reseal(bundle)
    findings = [finding for finding in verify(bundle).findings if finding.file == name]
    assert {finding.code for finding in findings} - {Code.INCOMPLETE} == {Code.INVALID}
    assert pointer in {finding.pointer for finding in findings}


# Finding bundles


def test_bundles_are_found_from_any_folder_above(pristine: Path) -> None:
    """The bundle's own folder is found too."""
    for folder in (pristine, pristine.parent, pristine.parents[2], pristine.parents[3]):
        assert find_bundles([folder]) == [pristine]
    assert find_bundles([pristine, pristine.parent]) == [pristine]


def test_a_bundle_that_lost_its_record_is_still_found(bundle: Path) -> None:
    """Removing one file must not hide the rest."""
    for name in ("record.json", "MANIFEST.sha256"):
        (bundle / name).unlink()
        assert find_bundles([bundle.parents[2]]) == [bundle]
        assert not verify(bundle).sound


def test_unfinished_folders_are_found_and_incomplete(bundle: Path) -> None:
    """Unfinished folders are reported as incomplete."""
    unfinished = bundle.with_name(".unfinished-x")
    unfinished.mkdir()
    assert find_bundles([bundle.parents[2]]) == [unfinished, bundle]
    assert found(verify(unfinished)) == {(Code.INCOMPLETE, "")}


def test_links_are_not_followed_when_looking(bundle: Path) -> None:
    """A cycle of folders has an end."""
    (bundle.parent / "loop").symlink_to(bundle.parents[2])
    assert find_bundles([bundle.parents[2]]) == [bundle]


def test_a_folder_that_cannot_be_read_is_reported(not_root: Path) -> None:
    """The folder is reported, because it could have a bundle."""
    (bundle,) = find_bundles([not_root])
    assert verify(bundle).sound
    for name in ("record.json", "artifacts", "."):
        (bundle / name).chmod(0)
        assert find_bundles([not_root]) == [bundle]
        assert not verify(bundle).sound
        (bundle / name).chmod(0o700)


def test_verifying_needs_neither_torch_nor_pandas(pristine: Path) -> None:
    """`verify` works on a machine without torch and pandas."""
    script = f"""
import sys
for name in ("torch", "pandas", "numpy", "transformers", "pynvml", "psutil", "matplotlib"):
    sys.modules[name] = None
from pathlib import Path
from harness.evidence.verification import verify
print(verify(Path({str(pristine)!r})).sound)
"""
    ended = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert ended.stdout == "True\n", ended.stderr
