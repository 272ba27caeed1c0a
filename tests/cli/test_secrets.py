"""Secrets in names: of source files, of folders, in paths as they are shown, and in contracts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from unicodedata import normalize

import pytest

from harness.base.redaction import MASK
from harness.base.vocabulary import ExitStatus
from tests.cli.harness_command import harness
from tests.cli.toy_claim import CLAIM
from tests.execution.projects import write_project

KNOWN = normalize("NFC", "grünes-pferd-batterie")
ISSUED = "_".join(["ghp", "Ab1" * 12])  # in two parts, so that no scanner of repositories takes it for real
FORMS = [ISSUED, *(normalize(form, KNOWN) for form in ("NFC", "NFD"))]


@pytest.fixture(params=[FORMS[0], FORMS[2]], ids=["issued", "NFD"])
def secret(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A secret of this process, or a token of a known shape; as names show it."""
    monkeypatch.setenv("DEPLOY_TOKEN", KNOWN)
    found: str = request.param
    return found


@pytest.fixture
def folder(tmp_path: Path, secret: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose falsifier reads a file with the secret in its name. Temporary files go to such a folder."""
    write_project(tmp_path)
    (tmp_path / "toy" / f"table-{secret}.txt").write_text("1")
    module = tmp_path / "toy" / "sorting.py"
    reads = f"import pathlib\n_TABLE = (pathlib.Path(__file__).parent / 'table-{secret}.txt').read_text()\n"
    module.write_text(f"{module.read_text()}\n\n{reads}")
    (tmp_path / f"tmp-{secret}").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / f"tmp-{secret}"))
    return tmp_path


def leaks(texts: Iterator[tuple[str, str]] | list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The places of texts in which a form of a secret stands, and the first such line."""
    found = []
    for place, text in texts:
        for form in (*FORMS, *(json.dumps(form)[1:-1] for form in FORMS)):
            found += [(place, line) for line in text.splitlines() if form in line][:1]
    return found


def files_of(place: Path) -> Iterator[tuple[str, str]]:
    """The names below a folder, and what the files hold."""
    for path in sorted(place.rglob("*")):
        name = str(path.relative_to(place))
        yield "a name", name
        if path.is_file():
            yield name, path.read_bytes().decode("utf-8", "replace")


def test_no_name_brings_a_secret_into_evidence(folder: Path, secret: str) -> None:
    """Neither the terminal, nor a file of the bundle, nor a report of the run shows it. The evidence is sound."""
    evidence = f"evidence-{secret}"
    reports = ["--json", "run.json", "--junit", "run.xml"]
    done = harness(folder, "run", CLAIM, "-v", "--evidence", evidence, *reports)
    assert done.returncode == ExitStatus.PASS, done.stdout + done.stderr
    assert (MASK in done.stdout, leaks([("stdout", done.stdout), ("stderr", done.stderr)])) == (True, [])
    assert leaks([(name, (folder / name).read_text()) for name in ("run.json", "run.xml")]) == []
    assert leaks(files_of(folder / evidence)) == []
    (bundle,) = (folder / evidence / "TOY-1" / CLAIM).iterdir()
    assert [name for name in json.loads((bundle / "record.json").read_text())["sources"] if MASK in name]
    said = [
        harness(folder, *command)
        for command in (
            ["verify", evidence],
            ["verify", evidence, "--json"],
            ["status", "--evidence", evidence, "-v"],
            [
                "report",
                evidence,
                "--html",
                "site",
                "--markdown",
                "page.md",
                "--sarif",
                "run.sarif",
                "--ctrf",
                "ctrf.json",
            ],
            ["doctor"],
        )
    ]
    assert [done.returncode for done in said if done.returncode == ExitStatus.REFUSED] == [], said
    assert leaks([(str(done.args), done.stdout + done.stderr) for done in said]) == []
    assert leaks(files_of(folder / "site")) == []
    assert leaks([(name, (folder / name).read_text()) for name in ("page.md", "run.sarif", "ctrf.json")]) == []


@pytest.mark.parametrize("place", ["/title", "/mutants/0/defect"])
def test_a_contract_with_a_secret_does_not_run(folder: Path, secret: str, place: str) -> None:
    """A bundle has a copy of the contract. The refusal and every other command name the place, and mask the secret."""
    path = folder / "contracts" / CLAIM / "contract.json"
    contract = json.loads(path.read_text())
    text = f"it sorts with {secret} at hand"
    if place == "/title":
        contract["title"] = text
    else:
        contract["mutants"][0]["defect"] = text
    path.write_text(json.dumps(contract))
    run, lint = harness(folder, "run", CLAIM), harness(folder, "lint", str(path))
    assert (run.returncode, place in run.stderr) == (ExitStatus.REFUSED, True), run.stderr
    assert (lint.returncode, place in lint.stdout + lint.stderr) == (ExitStatus.REFUSED, True), (
        lint.stdout + lint.stderr
    )
    shown = [
        run,
        lint,
        *(
            harness(folder, *words)
            for words in (["list"], ["list", "--json"], ["show", CLAIM], ["show", CLAIM, "--json"])
        ),
    ]
    assert leaks([(str(done.args), done.stdout + done.stderr) for done in shown]) == []
    assert not (folder / "evidence" / "TOY-1").exists()
