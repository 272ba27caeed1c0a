"""One bundle as a page: what was claimed, what was measured, and why to believe it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from markupsafe import Markup, escape

from harness.base import strictjson
from harness.base.device import hardware
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import Outcome
from harness.contract.contract_annotations import Refutation
from harness.evidence.findings import Code, Verification
from harness.evidence.trial_files import SUBJECT
from harness.judging.observation import EndingKind
from harness.judging.record import Record
from harness.report.escaping import printable
from harness.report.messages import number_text, qualifiers
from harness.report.messages.qualifiers import refutation_text, standing
from harness.report.messages.verdict_text import DOES_NOT_REPEAT
from harness.tools.html import charts, plot
from harness.tools.html.clause_rows import ClauseGroup, Clauses, Row, kills
from harness.tools.html.contents import Contents
from harness.tools.html.templating import page
from harness.tools.report_text import caveats, signature, signed, statement, why

__all__ = ["Site", "render", "unreadable"]

_ANSI = re.compile(r"\x1b\[[0-9;:]*m")
_HIGHLIGHTS: Final = 4
_LEAD: Final = 360
"""Letters of a claim. The sentences after them are folded."""
_MOST_SOURCES: Final = 200
_MOST_JSON: Final = 8_000
_MOST_LOG: Final = 128 << 10
"""Letters of each log that a page shows."""
_QUIET: Final = (Code.UNSIGNED, Code.UNKNOWN_KEY)
"""Remarks that get no chip beside the verdict unless they are refused."""
_LINKED: Final = ("https://", "http://")


@dataclass(frozen=True)
class Log:
    """One output stream of the subject's trial, as shown."""

    name: str
    text: Markup
    lines: int
    size: int
    """Bytes that the trial wrote."""
    cut: bool


@dataclass(frozen=True)
class Site:
    """The site of a page, which lies in the folder of its claim."""

    name: str
    """The name of the project; empty without one."""
    has_claim: bool
    """Whether the claim has a page."""


def render(
    contents: Contents,
    verification: Verification,
    site: Site | None = None,
    checked_against: Sequence[str] = (),
    notes: str = "",
    refutation: Refutation | None = None,
) -> str:
    """Return the page of a bundle.

    Args:
        verification: the result of verifying the bundle.
        site: where the page stands; None if it stands alone.
        asked: what the bundle was checked against (see `harness.tools.report_text.asked`).
        notes: the notes next to the contract in the project. They are not part of the bundle.
        refutation: that of the project's contract that speaks of the run. It is not part of the bundle either.
    """
    record = contents.record
    narrowing = list(caveats(record, verification.remarks))
    clauses = Clauses.of(contents.contract)
    rows = clauses.rows(record.clauses, contents.observation, record.unjudged)
    judged = [row for row in rows if row.kind is not ClauseGroup.UNJUDGED]
    table = kills(contents, clauses)
    observation = contents.observation
    return page(
        "bundle.html.j2",
        record=record,
        sources=_sources(contents),
        statement=statement(record, verification, {caveat.head for caveat in narrowing}),
        contents=contents,
        verification=verification,
        asked=checked_against,
        signature=(signed(verification), signature(verification)),
        circumstances=_circumstances(record, verification),
        tally=qualifiers.mutants(record),
        caveats=narrowing,
        chips=[caveat.head for caveat in narrowing if caveat.head not in _QUIET or caveat.head in verification.refused],
        rows=rows,
        judged=judged,
        claim=_parted(contents.contract.claim) if contents.contract else None,
        highlights=_highlights(judged, record),
        groups=[(kind, [row for row in rows if row.kind is kind]) for kind in ClauseGroup],
        counts=Counter(row.outcome for row in rows),
        kills=table,
        ending=observation.ending if observation and observation.ending.kind is not EndingKind.COMPLETED else None,
        traceback=_lines(observation.ending.traceback) if observation and observation.ending.traceback else None,
        as_json=_json,
        does_not_repeat=DOES_NOT_REPEAT,
        training=plot.drawn(charts.training(contents)),
        machine=plot.drawn(charts.machine(contents.telemetry)),
        samples=plot.drawn(charts.samples(contents)),
        resolved=_resolved(record),
        parameters=dict(observation.parameters) if observation else {},
        device=_facts({**record.device.to_json(), "the claim's hardware": hardware(record.target)}),
        machine_facts=_facts(_environment(contents.environment)),
        packages=_mapping(_mapping(contents.environment.get("software")).get("distributions")),
        variables=_mapping(contents.environment.get("variables")),
        logs=[_log(name, contents) for name in ("log", "stdout", "stderr")],
        digests=list(record.sources.items())[:_MOST_SOURCES],
        digests_left=max(len(record.sources) - _MOST_SOURCES, 0),
        site=site,
        why=why(record, contents.contract),
        notes=notes,
        news=standing(refutation, record.result),
        refutation=refutation and refutation_text(refutation, record.result),
    )  # fmt: skip


def unreadable(name: str, reason: str, verification: Verification) -> str:
    """Return the page of a folder without a readable record."""
    return page("unreadable.html.j2", name=name, reason=reason, verification=verification)


def _sources(contents: Contents) -> list[tuple[str, str | None, str, str]]:
    """Return where the claim was made: address, link or None, place and quote."""
    listed = contents.contract.document.get("sources", ()) if contents.contract else ()
    uris = [(source["uri"], source["uri"] if source["uri"].startswith(_LINKED) else None) for source in listed]
    return [
        (*uri, source.get("locator", ""), source.get("quote", "")) for uri, source in zip(uris, listed, strict=True)
    ]


def _circumstances(record: Record, verification: Verification) -> list[str]:
    where = record.device.name or record.device.type
    isolated = [qualifiers.ISOLATED] if record.isolated else []
    size, took = qualifiers.profile(record.profile), number_text.duration(record.seconds)
    return [size, where, took, *isolated, signed(verification)]


_TELLING: Final = (ClauseGroup.BUILT_IN, ClauseGroup.RULE, ClauseGroup.BOUND, ClauseGroup.FORM)
_HOW_MUCH: Final = (".minItems", ".minLength", ".minProperties")
"""Clauses on how much was measured. They are shown only if there is nothing else."""


def _parted(claim: str) -> tuple[str, str]:
    """Return a claim's first sentences and the rest. A short rest is not split off."""
    end = claim.find(". ", _LEAD) + 1
    return (claim[:end], claim[end:].strip()) if 0 < end < len(claim) - _LEAD // 2 else (claim, "")


def _highlights(rows: Sequence[Row], record: Record) -> list[Row]:
    """Return the clauses to show first: those that decided the verdict, else those that most mutants must fail."""
    against = [row for row in rows if row.outcome is not Outcome.PASS]
    if against:
        # An exception or a wrong device explains more than the clauses that it broke.
        against.sort(key=lambda row: (row.kind is not ClauseGroup.DECISIVE, _TELLING.index(row.nature)))
        decisive = {row.reason or row.id: row for row in reversed(against)}
        return list(reversed(decisive.values()))[:_HIGHLIGHTS]
    telling = sorted(
        (row for row in rows if row.kind in (ClauseGroup.RULE, ClauseGroup.BOUND)),
        key=lambda row: (
            row.id.endswith(_HOW_MUCH),
            -sum(row.id in mutant.violates for mutant in record.mutants),
            row.ratio is None,
            row.kind is ClauseGroup.BOUND,
        ),
    )
    return telling[:_HIGHLIGHTS]


def _resolved(record: Record) -> list[tuple[str, str, str, bool]]:
    """Return name, requested value, resolved value, and whether they agree."""
    rows = []
    for name in dict.fromkeys([*record.requested, *record.resolved]):
        requested, got = record.requested.get(name), record.resolved.get(name)
        agree = name not in record.requested or (name in record.resolved and requested == got)
        shown = number_text.value(got) if name in record.resolved else "not read back"
        rows.append((name, number_text.value(requested), shown, agree))
    return rows


def _environment(environment: JsonObject) -> dict[str, Any]:
    """Return the facts of the environment that most often explain a difference."""
    host, software = _mapping(environment.get("host")), _mapping(environment.get("software"))
    packages = _mapping(software.get("distributions"))
    return {
        "driver": host.get("driver") or software.get("driver_reason"),
        "CUDA of the driver": host.get("cuda_driver_version"),
        **{name: packages.get(name) for name in ("torch", "triton", "transformers", "numpy")},
        "Python": _mapping(software.get("python")).get("version"),
        "platform": software.get("platform") or host.get("kernel"),
        **{name: host.get(name) for name in ("hostname", "machine", "cpu_count", "memory_bytes")},
    }


def _facts(values: JsonObject) -> list[tuple[str, str]]:
    """Return names in words and the values that are known, bytes in binary units."""
    units = {name: "B" if name.endswith("_bytes") else "" for name in values}
    return [
        (
            name.removesuffix("_bytes").replace("_", " "),
            one if isinstance(one, str) else number_text.value(one, units[name]),
        )
        for name, one in values.items()
        if isinstance(one, (str, int, float)) and one
    ]


def _log(name: str, contents: Contents) -> Log:
    stream = contents.logs.get((SUBJECT, name))
    text = stream.text if stream else ""
    plain = _ANSI.sub("", text)
    cut = len(plain) > _MOST_LOG
    if cut:
        head, tail = plain[: _MOST_LOG // 4], plain[-(_MOST_LOG - _MOST_LOG // 4) :]
        plain = f"{head}\n[… {len(plain) - len(head) - len(tail)} letters left out here; trials.log has more …]\n{tail}"
    size = _mapping(contents.record.logs.get(name)).get("size")
    return Log(name, _lines(plain), len(plain.rstrip().splitlines()), size if isinstance(size, int) else len(text), cut)


def _lines(text: str) -> Markup:
    """Return lines with escaped control characters. A carriage return of a progress bar ends a line too."""
    return escape("\n".join(printable(line.expandtabs()) for line in re.split(r"\r\n|\r|\n", text.rstrip())))


def _json(value: Any) -> Markup:
    written = strictjson.dumps(strictjson.tag_nonfinite(value), indent=2)
    return _lines(written if len(written) <= _MOST_JSON else written[:_MOST_JSON] + "\n[… cut here …]")


def _mapping(value: Any) -> JsonObject:
    return value if isinstance(value, Mapping) else {}
