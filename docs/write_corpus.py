"""docs/corpus.md: the documented mistakes of falsifiers/corpus/, and what came of the last recorded run.

    harness corpus run --json falsifiers/corpus/results.json
    python docs/write_corpus.py             # or from another record to another file: RESULTS PAGE

tests/tools/corpus/test_page.py compares the page with the records and the results.
"""

from __future__ import annotations

import html
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from harness.tools.corpus.record import COSTS, Case, cases_of
from harness.tools.corpus.results import Fate, corpus_digest, table, table_of_groups

__all__ = ["PAGE", "RESULTS", "page"]

_ROOT: Final = Path(__file__).parents[1]
PAGE: Final = Path(__file__).parent / "corpus.md"
RESULTS: Final = _ROOT / "falsifiers" / "corpus" / "results.json"

_TEXT: Final = _ROOT / "falsifiers" / "corpus" / "page.md"
"""The page without what follows from records and results."""


def page(cases: Sequence[Case], results: Mapping[str, Any]) -> str:
    """The text of docs/corpus.md."""
    known = [one for one in cases if one.id in results["cases"]]  # a new case has no results before the next run
    fates = _fates(results)
    judged = [one for case in results["cases"].values() for form in case["judged"].values() for one in form]
    return (
        _TEXT.read_text(encoding="utf-8").format(
            circumstances=_circumstances(results),
            table=_rows(table(known, fates)),
            groups=_rows(table_of_groups(known, _rounds(results))),
            unable=_unable(results["cases"].values()),
            missed=_list(_open(known, next(iter(fates.values())))),
            trials=len({digest for one in judged for digest in one["manifests"]}),
            costs=", ".join(COSTS),
            sources=_sources(cases),
        )
        + _rows(_cases(cases, fates, _pages()))
        + "\n"
    )


def _fates(results: Mapping[str, Any]) -> dict[str, dict[str, Fate]]:
    names = list(next(iter(results["cases"].values()))["fates"])
    return {name: {case: Fate(one["fates"][name]) for case, one in results["cases"].items()} for name in names}


def _rounds(results: Mapping[str, Any]) -> dict[str, list[dict[str, str]]]:
    """By profile: the fates of its rounds, by case."""
    found: dict[str, list[dict[str, str]]] = {}
    for place, (profile, _) in enumerate(results["rounds"]):
        found.setdefault(profile, []).append({name: one["rounds"][place] for name, one in results["cases"].items()})
    return found


def _circumstances(results: Mapping[str, Any]) -> str:
    is_current = results["corpus"] == corpus_digest(_ROOT)
    changed = "" if is_current else " **Files of the corpus have changed since, and were not measured again.**"
    rounds = Counter(profile for profile, _ in results["rounds"])
    told = "; ".join(f"{profile} profile, {number} seeds" for profile, number in rounds.items())
    return (
        f"{results['started'][:10]}, version {results['version']}, on a CPU: "
        f"{told}; {round(results['seconds'] / 60)} minutes.{changed}"
    )


def _unable(cases: Iterable[Mapping[str, Any]]) -> str:
    """Which claims could not run on either form of a case, by profile and reason."""
    unable: set[tuple[str, ...]] = set()
    for case in cases:
        forms = [
            {(result["profile"], _cause(result["clauses"]), result["claim"]) for result in form
             if result["verdict"] == "NOT_MEASURED"}
            for form in case["judged"].values()
        ]  # fmt: skip
        unable |= set.intersection(*forms) if forms else set()
    groups = groupby(sorted(unable), key=lambda row: row[:2])
    lines = [
        f"the {profile} profile of {', '.join(f'`{claim}`' for *_, claim in rows)}: {_plain(why)}"
        for (profile, why), rows in groups
    ]
    return f"Not run here:\n\n{_list(lines)}" if lines else "Every claim that applies was run."


def _cause(clauses: Iterable[str]) -> str:
    """Why a claim could not run, without the clause and without what would run instead."""
    why = " ".join(clauses)
    return why.rpartition("full: ")[2].partition(";")[0] if "full: " in why else why


def _open(cases: Sequence[Case], fates: Mapping[str, Fate]) -> Iterator[str]:
    for case in cases:
        if fates[case.id] is not Fate.CAUGHT:
            why = _plain(case.missed or case.out_of_scope) or "its claims could not run here"
            yield f"`{case.id}`, {fates[case.id]}: {why}"


def _sources(cases: Sequence[Case]) -> str:
    opened = [one for one in cases if one.checked]
    if len(opened) == len(cases):
        return f"All {len(cases)} sources were opened, and the records compared with them."
    return (
        f"{len(opened)} of {len(cases)} sources were opened, and the records compared with them; the others are "
        "marked: they were not found among the stored pages at hand."
    )


def _pages() -> dict[str, str]:
    """By claim: the page of its family."""
    return {
        folder.name: "#the-claims" if folder.parent.name == "corpus" else f"{folder.parent.name}.md"
        for folder in (_ROOT / "contracts").glob("*/F-*")
    }


def _cases(
    cases: Iterable[Case], fates: Mapping[str, Mapping[str, Fate]], pages: Mapping[str, str]
) -> Iterator[Sequence[str]]:
    yield ["case", "kind", "year", "cost", "believed", "true", "noticed", "claims", "caught by", "missed by"]
    for case in cases:
        mark = "" if case.checked else " (not opened)"
        what = f"[{_plain(case.title)}]({case.source}){mark}<br>`{case.id}`"
        noticed = f"{_plain(case.noticed)}; {_plain(case.late)}"
        claims = ", ".join(f"[`{one}`]({pages[one]})" for one in case.claims) or "none"
        told = [
            ", ".join(_plain(name) for name, of in fates.items() if of.get(case.id) is fate)
            for fate in (Fate.CAUGHT, Fate.MISSED)
        ]
        group = case.kind if case.group != "forgeries" else f"{case.kind}, forgery"
        yield [
            what, group, str(case.year), case.cost, _plain(case.believed), _plain(case.truth), noticed, claims, *told
        ]  # fmt: skip


def _rows(rows: Iterable[Sequence[str]]) -> str:
    head, *others = rows
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *others])


def _list(items: Iterable[str]) -> str:
    return "\n".join(f"- {one}" for one in items)


def _plain(text: str) -> str:
    """A text in which nothing is markup but code."""
    return html.escape(text, quote=False).replace("|", "\\|").replace("*", "\\*").replace("_", "\\_")


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:3] or (RESULTS, PAGE))
    target.write_text(page(cases_of(_ROOT), json.loads(source.read_text(encoding="utf-8"))), encoding="utf-8")
