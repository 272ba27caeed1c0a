"""`harness keygen`, `run --key`, `attest` and `verify --trusted-key`, through the installed command."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from syrupy.assertion import SnapshotAssertion

from harness.base.vocabulary import ExitStatus
from harness.tools.sign import attest
from tests.cli.harness_command import COMMAND, complaint, environment, harness
from tests.contracts import healthy
from tests.evidence.factory import files_of, rewrite, sealed, set_at
from tests.execution.projects import write_project

CLAIM = "F-TOY-SORT-001"
PLACE = "evidence/DEMO-1/F-DEMO-SORT-001"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two keys."""
    for name in ("ci.key", "other.key"):
        assert harness(tmp_path, "keygen", name).returncode == ExitStatus.PASS
    return tmp_path


def key_id(folder: Path, name: str = "ci.key") -> str:
    """The form in which `verify` names a key."""
    from harness.tools.sign.keys import load_public

    return str(load_public(folder / f"{name}.pub").keyid)


# keygen


def test_a_key_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    """The umask makes no difference. The public half is printed; the file has OpenSSL's form."""
    before = os.umask(0)
    try:
        made = harness(tmp_path, "keygen", "ci.key")
    finally:
        os.umask(before)
    assert (made.returncode, made.stderr) == (ExitStatus.PASS, "")
    assert (tmp_path / "ci.key").stat().st_mode & 0o777 == 0o600
    public = (tmp_path / "ci.key.pub").read_text()
    assert public in made.stdout
    assert key_id(tmp_path) in made.stdout
    private = (tmp_path / "ci.key").read_text()
    assert private.startswith("-----BEGIN PRIVATE KEY-----\n")
    assert private.splitlines()[1] not in made.stdout
    assert public.startswith("-----BEGIN PUBLIC KEY-----\n")


@pytest.mark.parametrize("ignored", ["", "*.key*\n"])
def test_a_key_that_a_commit_could_take_along_is_told(tmp_path: Path, ignored: str) -> None:
    """`keygen` warns of a key in a checkout. The key also makes the checkout dirty, so a signature names no commit."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".gitignore").write_text(ignored)
    (tmp_path / "a folder").mkdir()
    for name in ("ci.key", "a folder/[x].key"):
        made = harness(tmp_path, "keygen", name)
        assert made.returncode == ExitStatus.PASS
        assert ("DIRTY_TREE" in made.stderr) == (not ignored), made.stderr


# run --key


@pytest.mark.parametrize("how", ["option", "variable"])
def test_a_signed_run_keeps_its_key_to_itself(folder: Path, how: str) -> None:
    """The bundle is signed. Bundle, output and the trial's environment contain neither the key nor its path."""
    write_project(folder)
    module = folder / "toy" / "sorting.py"
    module.write_text(f"import os\nprint('these are they', dict(os.environ), flush=True)\n{module.read_text()}")
    variables = environment(folder)
    options = ["--key", "ci.key"]
    if how == "variable":
        variables["HARNESS_SIGNING_KEY"] = str(folder / "ci.key")
        options = []
    done = subprocess.run(
        [*COMMAND, "run", CLAIM, *options], cwd=folder, env=variables, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == ExitStatus.PASS, done.stdout + done.stderr
    (bundle,) = (folder / "evidence" / "TOY-1" / CLAIM).iterdir()
    secret = (folder / "ci.key").read_text().splitlines()[1]
    output = (
        done.stdout + done.stderr + "".join((bundle / name).read_text(errors="replace") for name in files_of(bundle))
    )
    assert secret not in output
    assert "SIGNING_KEY" not in output
    assert "ci.key" not in output
    verified = harness(folder, "verify", "evidence", "--trusted-key", "ci.key.pub")
    assert verified.returncode == ExitStatus.PASS
    assert f"signed by {key_id(folder)[:12]}" in verified.stdout
    # Staleness is checked against the project of the evidence.
    assert "STALE" not in verified.stdout


@pytest.mark.parametrize(
    "content",
    [None, "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n"],
    ids=["missing", "garbage"],
)
def test_a_key_that_cannot_sign_refuses_the_run(folder: Path, content: str | None, snapshot: SnapshotAssertion) -> None:
    """It is refused before anything runs, and the file's content is not shown."""
    write_project(folder)
    if content:
        (folder / "a.key").write_text(content)
    done = harness(folder, "run", CLAIM, "--key", "a.key")
    assert done.returncode == ExitStatus.REFUSED
    assert complaint(done, folder) == snapshot
    assert "c2VjcmV0" not in done.stderr
    assert not (folder / "evidence").exists()


# attest and verify


def test_bundles_are_signed_later_and_by_several(folder: Path) -> None:
    """All bundles below a folder are signed. Existing signatures stay."""
    sealed(folder, run="a-pass")
    sealed(folder, run="b-fail", measurements=healthy(returned=2))
    first = harness(folder, "attest", "evidence", "--key", "ci.key")
    assert (first.returncode, first.stderr) == (ExitStatus.PASS, "")
    assert first.stdout.splitlines()[-1] == f"2 bundles: 2 signed by {key_id(folder)}"
    again = harness(folder, "attest", f"{PLACE}/a-pass", "--key", "ci.key")
    assert (again.returncode, again.stdout.splitlines()[0]) == (0, f"signed already: {PLACE}/a-pass")
    assert harness(folder, "attest", f"{PLACE}/a-pass", "--key", "other.key").returncode == ExitStatus.PASS
    both = harness(folder, "verify", "evidence", "--trusted-key", "ci.key.pub", "--trusted-key", "other.key.pub")
    assert both.returncode == ExitStatus.PASS
    names = ", ".join(sorted(key_id(folder, name)[:12] for name in ("ci.key", "other.key")))
    assert f"signed by {names}" in both.stdout
    other = harness(folder, "verify", "evidence", "--trusted-key", "other.key.pub")
    assert other.returncode == ExitStatus.REFUSED
    assert "NOT_ACCEPTED (FAIL)" in other.stdout
    assert "1 of them not" in other.stdout.splitlines()[-2]


def test_a_key_that_others_can_read(folder: Path, snapshot: SnapshotAssertion) -> None:
    """The key signs with a warning, as ssh warns. An empty option does not mean the current folder."""
    sealed(folder)
    (folder / "ci.key").chmod(0o644)
    done = harness(folder, "attest", "evidence", "--key", "ci.key")
    message = "harness: ci.key is a private key that others can read (mode 644); chmod 600 ci.key\n"
    assert (done.returncode, done.stderr) == (ExitStatus.PASS, message)
    assert complaint(harness(folder, "attest", "evidence", "--key", ""), folder) == snapshot


def test_a_bundle_that_cannot_be_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bundle is named, and the temporary file is removed."""
    bundle = sealed(folder)

    def refused(*arguments: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "/x/.attestation-1", None, "/x/attestation")

    monkeypatch.setattr("harness.tools.sign.signing.os.replace", refused)
    done = CliRunner().invoke(attest.command, [str(bundle), "--key", str(folder / "ci.key")])
    assert done.stderr == f"not signed: {bundle}: Permission denied\n"


def test_what_is_unsound_is_not_signed(folder: Path, snapshot: SnapshotAssertion) -> None:
    """An unsound bundle is not signed. The others are signed, and the exit status is 2."""
    sealed(folder, run="a-good")
    rewrite(sealed(folder, run="b-bad"), "record.json", set_at("verdict", "FAIL"))
    done = harness(folder, "attest", "evidence", "--key", "ci.key")
    assert done.returncode == ExitStatus.REFUSED
    assert complaint(done, folder) == snapshot
    assert done.stdout.splitlines() == [f"signed: {PLACE}/a-good", f"2 bundles: 1 signed by {key_id(folder)}"]
    assert harness(folder, "attest", "contracts", "--key", "ci.key").returncode == ExitStatus.NOT_MEASURED
    assert harness(folder, "attest", "nowhere", "--key", "ci.key").returncode == ExitStatus.REFUSED


def test_remarks_fail_where_they_are_named(folder: Path) -> None:
    """Codes are given in either case, several at once, or as `any`."""
    sealed(folder, overrides={"steps": 5})
    for codes, status in (("REDUCED_PROFILE", 2), ("dirty_tree,Overridden", 2), ("any", 2), ("DIRTY_TREE", 0)):
        assert harness(folder, "verify", "evidence", "--fail-on", codes).returncode == status, codes


@pytest.mark.parametrize(
    "codes",
    [
        "OLD",
        "",
        "TAMPERED",
        "STALE_CONTRACT",
        "any",
    ],
)
def test_what_cannot_be_failed_on(folder: Path, codes: str, snapshot: SnapshotAssertion) -> None:
    """`--fail-on` refuses a code that no bundle can have. `any` means every remark that can occur here."""
    sealed(folder)
    done = harness(folder, "verify", "evidence", "--fail-on", codes)
    assert done.returncode == ExitStatus.REFUSED
    assert complaint(done, folder) == snapshot


def test_a_changed_project_makes_evidence_stale(folder: Path) -> None:
    """`verify` reports it in the project, and a gate can fail on it."""
    write_project(folder)
    assert harness(folder, "run", CLAIM).returncode == ExitStatus.PASS
    gate = ("verify", "evidence", "--fail-on", "STALE_CONTRACT,STALE_FALSIFIER,STALE_SUBJECT")
    assert harness(folder, *gate).returncode == ExitStatus.PASS
    with (folder / "toy" / "sorting.py").open("a") as file:
        file.write("# more\n")
    stale = harness(folder, *gate)
    assert stale.returncode == ExitStatus.REFUSED
    (line,) = [line for line in stale.stdout.splitlines() if "STALE_SUBJECT record.json/sources: " in line]
    assert line.endswith(" toy/sorting.py")
    assert "staleness was not" not in stale.stdout


def test_without_the_libraries_the_remedy_is_told(folder: Path) -> None:
    """Commands that need no key still work, also on signed bundles. The others name the remedy."""
    sealed(folder)
    assert harness(folder, "attest", "evidence", "--key", "ci.key").returncode == ExitStatus.PASS
    hidden = folder / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "import sys\n"
        "class Hidden:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('cryptography', 'securesystemslib', 'in_toto_attestation', 'google'):\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Hidden())\n"
    )
    variables = {**environment(folder), "PYTHONPATH": f"{hidden}{os.pathsep}{Path(__file__).parents[2]}"}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*COMMAND, *words], cwd=folder, env=variables, capture_output=True, text=True)

    verified = run("verify", "evidence")
    assert (verified.returncode, "UNKNOWN_KEY" in verified.stdout) == (0, True), verified.stderr
    for words in (
        ("keygen", "new.key"),
        ("attest", "evidence", "--key", "ci.key"),
        ("verify", "evidence", "--trusted-key", "ci.key.pub"),
    ):
        refused = run(*words)
        assert (refused.returncode, "[sign]'" in refused.stderr) == (2, True), refused.stderr


# report


def test_a_report_takes_only_what_a_trusted_key_signed(folder: Path) -> None:
    """Every format behaves as `verify` does. An invalid key is refused before anything is written."""
    sealed(folder, run="a-signed")
    sealed(folder, run="b-unsigned", measurements=healthy(returned=2))
    assert harness(folder, "attest", f"{PLACE}/a-signed", "--key", "ci.key").returncode == ExitStatus.PASS
    files = ["--markdown", "c.md", "--ctrf", "c.json", "--junit", "c.xml", "--sarif", "c.sarif", "--html", "site"]
    assert harness(folder, "report", "evidence", *files).returncode == ExitStatus.PASS
    assert "signed by an unknown key" in (folder / "c.md").read_text()
    done = harness(folder, "report", "evidence", *files, "--trusted-key", "ci.key.pub")
    assert (done.returncode, done.stderr) == (ExitStatus.REFUSED, "")
    assert set(done.stdout.splitlines()) == {
        f"2 bundles, 0 unsound, 1 not accepted: {name}"
        for name in ("c.md", "c.json", "c.xml", "c.sarif", "site/index.html")
    }
    comment = (folder / "c.md").read_text()
    assert "1 NOT_ACCEPTED, 1 PASS" in comment
    assert "| **NOT_ACCEPTED** (FAIL) |" in comment
    assert f"signed by {key_id(folder)[:12]}" in comment
    for name in ("c.json", "c.xml", "c.sarif"):
        assert "not accepted: UNSIGNED " in (folder / name).read_text(), name
    refused = harness(folder, "report", "evidence", "--html", "other", "--trusted-key", "ci.key")
    assert (refused.returncode, "--trusted-key" in refused.stderr) == (ExitStatus.REFUSED, True)
    assert not (folder / "other").exists()
