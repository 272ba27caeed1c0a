"""The site as files: the pages of each bundle, also of those that cannot be shown."""

from __future__ import annotations

import hashlib
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.base.vocabulary import Verdict
from harness.contract import load
from harness.contract.project import Project
from harness.evidence.index import read
from harness.evidence.verification import find_bundles
from harness.machine.limited_process import Limits
from harness.report.messages import finding_text
from harness.tools.html import index_page
from tests.contracts import document, healthy, write_project
from tests.evidence.factory import DEFECTIVE, claim_result, sealed, sealer
from tests.tools.html.evidence import bundles, write


def pages(folder: Path) -> list[str]:
    """Every page, relative to the site."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def badges(page: str) -> list[str]:
    """The texts of a page's badges, in order."""
    return re.findall(r"</svg>([A-Z_a-z ]+)</span>", page)


def table_of(index: str) -> str:
    """The table of claims and devices."""
    return index[index.index('<table class="matrix"') :].partition("</table>")[0]


def test_copies_of_a_bundle_have_a_page_each(tmp_path: Path) -> None:
    """Each copy has its own page."""
    sealed(tmp_path)
    shutil.copytree(tmp_path / "evidence", tmp_path / "more")
    entries = write(find_bundles([tmp_path / "evidence", tmp_path / "more"]), tmp_path / "site")
    run = "F-DEMO-SORT-001/2026-11-20T201503Z-cpu-3f2a9c"
    assert sorted(entry.page for entry in entries) == [f"{run}-2.html", f"{run}.html"]
    assert pages(tmp_path / "site") == [
        f"{run}-2.html",
        f"{run}.html",
        "F-DEMO-SORT-001/index.html",
        "index.html",
    ]


def test_names_from_a_record_do_not_lead_out_of_the_site(tmp_path: Path) -> None:
    """The names of a claim and a run in a record can be any text."""
    bundle = sealed(tmp_path)
    text = (bundle / "record.json").read_text()
    (bundle / "record.json").write_text(text.replace("2026-11-20T201503Z-cpu-3f2a9c", "../../../etc/out"))
    (entry,) = write([bundle], tmp_path / "site")
    assert not entry.verification.sound
    assert all((tmp_path / "site") in (tmp_path / "site" / name).resolve().parents for name in pages(tmp_path / "site"))
    assert not (tmp_path / "etc").exists()


def test_no_run_takes_the_page_of_its_claim(tmp_path: Path) -> None:
    """A run with the name index has a page with another name."""
    [entry] = write([sealed(tmp_path, run="index")], tmp_path / "site")
    assert entry.page == "F-DEMO-SORT-001/index-2.html"
    assert pages(tmp_path / "site") == ["F-DEMO-SORT-001/index-2.html", "F-DEMO-SORT-001/index.html", "index.html"]


def test_a_bundle_that_exceeds_a_limit_has_a_page_that_says_so(tmp_path: Path) -> None:
    """The page shows the finding. The limit is a size, because a fast machine could stay within any time."""
    bundle = sealed(tmp_path)
    (entry,) = write([bundle], tmp_path / "site", limits=Limits(answer_bytes=1))
    page = (tmp_path / "site" / entry.page).read_text()
    assert badges(page)[0] == "UNSOUND"
    (finding,) = entry.verification.findings
    assert (finding.code, finding.fields["text"]) == ("INVALID", "answered with more than 1 bytes")
    assert finding_text.message(finding) in page


def test_an_unfinished_folder_is_listed_as_what_it_is(tmp_path: Path) -> None:
    """The folder has no verdict."""
    bundle = sealed(tmp_path)
    bundle.rename(bundle.with_name(".unfinished-run~1-2-3"))
    (entry,) = write(find_bundles([tmp_path / "evidence"]), tmp_path / "site")
    assert (entry.verification.standing, entry.verification.findings[0].code) == ("UNSOUND", "INCOMPLETE")


def test_in_a_project_the_index_shows_the_status_of_every_claim(tmp_path: Path) -> None:
    """Unsound bundles do not count."""
    project = Project.find(write_project(tmp_path / "project"))
    contract = load(next(project.contracts.rglob("contract.json")), project.search)
    result = claim_result(tmp_path / "contracts", contract=contract, mutants={"forgets-one": {"returned": 2}})
    bundle = sealer(tmp_path).seal(result)
    write([bundle], tmp_path / "one", project)
    index = (tmp_path / "one" / "index.html").read_text()
    # The project lacks the sources that the factory invents, so a bundle covers other sources than the project has.
    assert badges(index)[:2] == ["STALE", "STALE"]
    assert "1 claim on 1 class of device: 1 STALE." in index
    (bundle / "trials.log").write_text("changed")
    write([bundle], tmp_path / "two", project)
    assert badges((tmp_path / "two" / "index.html").read_text())[:2] == ["UNRUN", "UNSOUND"]


def test_the_index_speaks_of_the_claims_of_its_bundles_only(tmp_path: Path) -> None:
    """Other claims of the project are not UNRUN. A claim that the project lacks is listed, too."""
    others = [document(id=f"F-DEMO-{name}-001") for name in ("ALPHA", "ZETA")]
    project = Project.find(write_project(tmp_path / "project", *others))
    write([sealed(tmp_path)], tmp_path / "site", project)
    index = (tmp_path / "site" / "index.html").read_text()
    assert re.findall(r"<code>(F-[^<]+)</code>", table_of(index)) == ["F-DEMO-SORT-001"]
    assert "UNRUN" not in table_of(index)


def test_the_index_names_a_fail_that_is_set_aside(tmp_path: Path) -> None:
    """The index links the FAIL beside the status, which does not change."""
    project = Project.find(write_project(tmp_path / "project"))
    contract = load(next(project.contracts.rglob("contract.json")), project.search)
    result = claim_result(
        tmp_path / "contracts", contract=contract, overrides={"steps": 3}, measurements=healthy(returned=2)
    )
    write([sealer(tmp_path).seal(result)], tmp_path / "site", project)
    index = (tmp_path / "site" / "index.html").read_text()
    page = f"{result.record.id}/{result.record.run}.html"
    assert re.search(rf'set aside: <a href="{page}">[^<]*FAIL[^<]*steps=3</a>', index)
    assert "FALSIFIED" not in table_of(index)


def test_what_is_against_a_claim_stands_first(tmp_path: Path) -> None:
    """In the matrix and in the list. If no run decides about a claim, the verdict of its runs is shown."""
    changes: dict[str, Any] = {
        "PASS": {},
        "UNPROVEN": {"skipped": True},
        "NOT_MEASURED": {"measurements": {}},
        "VOID": {"mutants": {**DEFECTIVE, "forgets-one": {}}},
        "FAIL": {"measurements": healthy(returned=2)},
    }
    documents = [document(id=f"F-DEMO-{word.replace('_', '-')}-001") for word in changes]
    project = Project.find(write_project(tmp_path / "project", *documents))
    for word, changed in changes.items():
        path = next(project.contracts.rglob(f"F-DEMO-{word.replace('_', '-')}-001/contract.json"))
        result = claim_result(tmp_path / word, contract=load(path, project.search), **changed)
        sealer(tmp_path).seal(result)
    write(find_bundles([tmp_path / "evidence"]), tmp_path / "site", project)
    index = (tmp_path / "site" / "index.html").read_text()
    assert badges(table_of(index))[::2] == ["VOID", "NOT_MEASURED", "UNPROVEN", "STALE", "STALE"]
    listed = index.partition('<ul class="bundles">')[2]
    assert badges(listed) == ["FAIL", "VOID", "NOT_MEASURED", "PASS", "PASS"]
    tones = re.findall(r'<span class="badge ([a-z]+) ', listed)
    assert sorted(tones[-2:]) == ["good", "open"], "a PASS that nothing proves does not look like one that is proven"


def test_the_title_names_the_project(tmp_path: Path) -> None:
    """The name is that of pyproject.toml, else that of the project's folder."""
    root = write_project(tmp_path / "project")
    write([], tmp_path / "site", Project.find(root))
    assert "<title>project: 0 claims</title>" in (tmp_path / "site" / "index.html").read_text()
    settings = root / "pyproject.toml"
    settings.write_text(settings.read_text() + '\n[project]\nname = "sorters"\n')
    write([], tmp_path / "site", Project.find(root))
    assert "<title>sorters: 0 claims</title>" in (tmp_path / "site" / "index.html").read_text()


def test_without_a_project_the_index_judges_by_the_contracts_in_the_bundles(tmp_path: Path) -> None:
    """No claim is DISCHARGED, because nothing says whether its code has changed since."""
    named = bundles(tmp_path)
    sound = [path for name, path in named.items() if name in ("PASS", "VOID")]
    write(sound, tmp_path / "site")
    index = (tmp_path / "site" / "index.html").read_text()
    assert "Staleness was not checked" in index
    assert badges(index)[0] == "VOID"
    assert "2 bundles: 1 VOID, 1 PASS." in index
    (entry,) = read(named["PASS"]).entries
    assert entry.proven
    full = index_page.matrix(None, [], [replace(entry, profile="full")], {})
    assert [field.word for row in full.rows for field in row.fields if field] == ["PARTIAL"]


def test_each_subject_of_a_claim_has_a_row(tmp_path: Path) -> None:
    """As `harness status` shows it: a FAIL of another subject refutes no claim, and stands below it."""
    (ours,) = read(sealed(tmp_path)).entries
    theirs = replace(ours, subject="demo:Other", verdict=Verdict.FAIL, run="theirs")
    rows = index_page.matrix(None, [], [ours, theirs], {}).rows
    assert [(row.id, row.subject, row.word) for row in rows] == [
        ("F-DEMO-SORT-001", "", "PARTIAL"),
        ("F-DEMO-SORT-001", "demo:Other", "FALSIFIED"),
    ]


def test_the_notes_of_the_project_stand_on_the_page(tmp_path: Path) -> None:
    """The notes are shown as text, whatever they contain. A bundle does not contain them."""
    bundle = sealed(tmp_path)
    root = write_project(tmp_path / "project")
    (root / "contracts" / "demo" / "F-DEMO-SORT-001" / "notes.md").write_text(
        "Why <b>three</b> items.", encoding="utf-8"
    )
    (entry,) = write([bundle], tmp_path / "site", project=Project.find(root))
    page = (tmp_path / "site" / entry.page).read_text(encoding="utf-8")
    assert "Why &lt;b&gt;three&lt;/b&gt; items." in page
    scrolled = re.findall("<pre[^>]*>", page)
    assert all('tabindex="0" role="region" aria-label=' in tag for tag in scrolled), "the keyboard scrolls each of them"
    (entry,) = write([bundle], tmp_path / "bare")
    assert 'class="notes"' not in (tmp_path / "bare" / entry.page).read_text(encoding="utf-8")


def test_known_refutations_and_new_ones_stand_apart(tmp_path: Path) -> None:
    """Index, claim page and bundle page say which a run is. A claim that holds against its contract is new too."""
    for name, clauses, measurements, news in (
        ("known", ["nothing-lost"], healthy(returned=2), "known"),
        ("other", ["subject.completes"], healthy(returned=2), "new"),
        ("holds", ["nothing-lost"], healthy(), "new"),
    ):
        stated = {"since": "2026-11-23", "device": "CPU", "profile": "reduced", "explanation": "The source is wrong."}
        refuted = [{**stated, "clauses": clauses}]
        project = Project.find(write_project(tmp_path / name, document(refuted=refuted)))
        contract = load(next(project.contracts.rglob("contract.json")), project.search)
        code = "falsifiers/demo/sorting.py"
        sources = {code: hashlib.sha256((project.root / code).read_bytes()).hexdigest()}
        result = claim_result(tmp_path / name / "run", contract=contract, measurements=measurements, sources=sources)
        (entry,) = write([sealer(tmp_path / name).seal(result)], tmp_path / name / "site", project)
        pages = [tmp_path / name / "site" / path for path in ("index.html", f"{entry.id}/index.html", entry.page)]
        index, claim, bundle = (path.read_text(encoding="utf-8") for path in pages)
        assert (entry.news, entry.verification.standing) == (news, "PASS" if name == "holds" else "FAIL")
        assert f"Refutations: {int(news == 'known')} known, {int(news == 'new')} new." in index
        assert f'class="chip" href="#devices">{news}</a>' in claim
        assert f'class="chip" href="#refutation">{news}</a>' in bundle
        assert ("The source is wrong." in bundle) is (news == "known")


def test_the_fleet_is_counted_by_class_of_device() -> None:
    """A claim counts only for the classes of device of its bundles."""
    passed, failed = (index_page.Field(word, "", None) for word in ("PARTIAL", "FALSIFIED"))
    cells = [(passed, None), (failed, passed), (passed, None)]
    rows = [index_page.Row(f"F-{number}", "", "", "", "PARTIAL", fields) for number, fields in enumerate(cells)]
    fleet = index_page.Matrix(("a", "b"), tuple(rows), ()).fleet()
    assert fleet == [[("FALSIFIED", 1), ("PARTIAL", 2)], [("PARTIAL", 1)]]
