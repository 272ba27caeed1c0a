"""A static site: an index of claims and devices, and a page for each claim and bundle. It opens from the file system.

    against = Against(state=ProjectState(project))
    bundles = [*verify_all(find_bundles([Path("evidence")]), against=against)]
    write(Evidence(bundles, against, project), Path("site"))

The same bundles and the same project give the same bytes, unless a job runs. The page of each bundle is made in its own
process, with bounded time and memory. If that fails, the page has the reason.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from harness.base import regular_file, toml
from harness.base.device import DeviceClass
from harness.contract import Contract
from harness.contract.contract_annotations import Refutation
from harness.contract.project import Project
from harness.evidence.bundle import BundleError
from harness.evidence.bundle_layout import is_folder_name
from harness.evidence.findings import Verification
from harness.evidence.index import read
from harness.evidence.verification import Against
from harness.machine.limited_process import Limits, Stopped, decoded, isolated_all
from harness.report.formats import STDOUT, Evidence
from harness.report.messages import qualifiers
from harness.report.messages.qualifiers import standing
from harness.report.running_jobs import running_jobs
from harness.report.terminal.progress_line import progress_line
from harness.tools.atomic_file import write_file
from harness.tools.html import bundle_page, claim_page, index_page
from harness.tools.html.clause_rows import Clauses
from harness.tools.html.contents import Contents
from harness.tools.html.index_page import ListedBundle
from harness.tools.html.templating import GENERATOR, compiled
from harness.tools.report_text import asked, why
from harness.tools.text_report import contracts_of

__all__ = ["INDEX", "about", "check", "pages", "write"]

about = "a static site into the folder TARGET"
INDEX = "index.html"
_MARK = f'<meta name="generator" content="{GENERATOR} '.encode()


def check(folder: Path) -> None:
    """Make the folder, and check that it can take the pages. Call it before you verify thousands of bundles.

    Raises:
        OSError: the folder is a file, has an index that another program wrote, or cannot be written.
    """
    index = folder / INDEX
    if folder == STDOUT:
        raise OSError("pages need a folder; standard output takes one file")
    if folder.is_file():
        raise OSError(f"{folder} is a file; name a folder, which the pages are written into")
    if index.is_symlink() or (index.exists() and not _is_ours(index)):
        raise OSError(f"{index} is there already and was not written by `harness report`; name another folder")
    folder.mkdir(parents=True, exist_ok=True)


def write(evidence: Evidence, target: Path) -> Path:
    """Write the site into a folder, and return its index. On a terminal, a line shows how many pages are done.

    Raises:
        OSError: see `pages`.
    """
    with progress_line("writing pages") as watch:
        pages(evidence.verifications, target, evidence.against, evidence.project, watch=watch)
    return target / INDEX


def pages(
    verifications: Sequence[Verification],
    folder: Path,
    against: Against,
    project: Project | None = None,
    limits: Limits | None = None,
    watch: Callable[[int, int], None] | None = None,
) -> list[ListedBundle]:
    """Write the pages of these bundles, and then the index. Return the entries of the index, the newest first.

    Args:
        verifications: of the bundles. Only those that are accepted count for what the index says of the claims.
        folder: made where it does not exist. Pages of an earlier report in it are replaced, or removed where this one
            has no such bundle; nothing else in it is touched.
        against: what the bundles were held against when they were verified.
        project: whose contracts of the bundles' claims say what the evidence comes to; without one, the index shows
            verdicts. The notes next to its contracts stand on the pages too.
        limits: what showing one bundle may use.
        watch: called with the number of written pages and of all pages.

    Raises:
        OSError: the folder has an index that another program wrote, or cannot be written.
    """
    check(folder)
    earlier = {path for path in folder.glob("*/*.html") if not path.is_symlink() and _is_ours(path)}
    stated = contracts_of(verifications, project)
    entries: list[ListedBundle] = []
    shown_at: dict[Path, ListedBundle] = {}
    taken: set[str] = set()
    held = list(asked(against))
    name = _name(project) if project else ""
    for done, (page, shown) in enumerate(_shown(verifications, name, held, stated, limits or Limits()), 1):
        entry = replace(shown, page=_free(shown.page, taken))
        write_file(folder / entry.page, page)
        entries.append(entry)
        if entry.verification.accepted:
            shown_at[entry.verification.path.absolute()] = entry
        if watch is not None:
            watch(done, len(verifications))
    entries.sort(key=lambda entry: (entry.started, entry.page), reverse=True)
    counting = [entry for bundle in shown_at for entry in read(bundle).entries]
    table = index_page.matrix(project, [*stated.values()], counting, shown_at)
    for row in table.claims:
        if row.page:
            own = [entry for entry in entries if entry.id == row.id]
            write_file(folder / row.page, claim_page.render(name, row, table, own))
    jobs = [*running_jobs(project)] if project else []
    write_file(folder / INDEX, index_page.render(name, entries, table, held, jobs))
    written = {folder / entry.page for entry in entries} | {folder / row.page for row in table.rows if row.page}
    for path in sorted(earlier - written):
        path.unlink()
    return entries


def _name(project: Project) -> str:
    """Return the name in a project's pyproject.toml, else that of its folder."""
    settings = toml.load(project.root / "pyproject.toml")
    about = settings.get("project", {})
    return str(about.get("name", project.root.name) if isinstance(about, dict) else project.root.name)


def _shown(
    verifications: Sequence[Verification],
    name: str,
    held: Sequence[str],
    stated: Mapping[str, Contract],
    limits: Limits,
) -> Iterator[tuple[str, ListedBundle]]:
    """Yield the page of each bundle and its entry in the index. Several are made at a time, each in its own process."""
    for template in ("base.html.j2", "parts.html.j2", "bundle.html.j2"):
        compiled(template)  # before the forks, which would each compile it anew
    works = [partial(_page, verification, name, held, stated) for verification in verifications]
    outcomes = isolated_all(works, limits, len(os.sched_getaffinity(0)))
    for verification, outcome in zip(verifications, outcomes, strict=True):
        if not isinstance(outcome, Stopped):
            page, entry = decoded(outcome)
            yield page, ListedBundle.from_json(entry)
            continue
        reason, folder = str(outcome).removeprefix(f"broke off with {BundleError.__name__}: "), verification.path.name
        yield (
            bundle_page.unreadable(folder, reason, verification),
            ListedBundle("unreadable/bundle", "", folder, verification),
        )


def _page(verification: Verification, name: str, held: Sequence[str], stated: Mapping[str, Contract]) -> bytes:
    """Return the page of one bundle and its entry in the index as JSON."""
    contents = Contents.read(Path(os.path.realpath(verification.path)))
    own = stated.get(contents.record.id)
    place = bundle_page.Site(name, own is not None or verification.accepted)
    refutation = None if own is None or not verification.accepted else contents.record.refutation(own)
    page = bundle_page.render(contents, verification, place, held, own.notes if own else "", refutation)
    return json.dumps([page, _entry(contents, verification, refutation).to_json()]).encode("ascii")


def _entry(contents: Contents, verification: Verification, refutation: Refutation | None) -> ListedBundle:
    """Return what the index and the claim's page show of a bundle."""
    record, contract = contents.record, contents.contract
    clauses = Clauses.of(contract)
    device = DeviceClass.of(record.device)
    of = [f"{qualifiers.profile(record.profile)} on {device}"]
    of += [f"with {qualifiers.changed(record.overrides)}"] if record.overrides else []
    of += [f"of {record.judged}"] if contract and record.subject != contract.subject else []
    names = [name if is_folder_name(name) else "unnamed" for name in (record.id, record.run)]
    return ListedBundle(
        page="/".join(names),
        id=record.id,
        title=record.title,
        verification=verification,
        reason="; ".join(why(record, contract)),
        claim=contract.claim if contract else "",
        proven=record.proven,
        news=standing(refutation, record.result),
        device=str(device),
        series=", ".join(of),
        started=record.started,
        circumstances=(qualifiers.profile(record.profile), *qualifiers.overridden(record.overrides)),
        mutants=qualifiers.mutants(record),
        numbers=claim_page.numbers(record, clauses.rows(record.clauses, contents.observation)),
    )


def _free(name: str, taken: set[str]) -> str:
    """Return a file name that no other page has. Copies of a bundle get a page each; `index` is the claim's."""
    count, candidate = 1, name
    while candidate.lower() in taken or candidate.lower().endswith("/index"):
        count += 1
        candidate = f"{name}-{count}"
    taken.add(candidate.lower())
    return f"{candidate}.html"


def _is_ours(path: Path) -> bool:
    with regular_file.opened(path) as file:
        return _MARK in file.read(4096)
