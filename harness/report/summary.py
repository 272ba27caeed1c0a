"""A record as a page of Markdown: what a reviewer reads in a bundle, and in a pull request."""

from __future__ import annotations

from collections.abc import Sequence

from harness.contract.clauses import ClauseResult
from harness.record import MutantRecord, Record
from harness.report import figures
from harness.report.caveats import Caveat, Code, capability, caveats
from harness.report.escaping import code_block, code_span, markdown
from harness.verdict import Fate, Outcome, Verdict

__all__ = ["render"]

_MOST_SOURCES = 60


def render(record: Record) -> str:
    """The page; it ends in a newline."""
    sections = [
        f"# {record.verdict}{_beside(record)}: {markdown(record.id)}",
        f"**{markdown(record.title)}**",
        markdown(record.reason),
        "\n".join(f"- {_caveat(caveat)}" for caveat in caveats(record)),
        _circumstances(record),
        "## Clauses",
        _clauses(record.clauses),
        f"## Mutants: {_tally(record.mutants)}",
        _mutants(record.mutants),
        "## Requested and resolved",
        _resolved(record),
        "## What this speaks for",
        _digests(record),
        "## To reproduce",
        code_block(record.command, "sh"),
        "To judge this bundle again, without a GPU:",
        code_block("harness verify .", "sh"),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _caveat(caveat: Caveat) -> str:
    parts = (code_span(part) if isinstance(part, Code) else markdown(part) for part in caveat.text)
    return f"**{caveat.head}**{''.join(parts)}."


def _beside(record: Record) -> str:
    """What narrows a PASS so much that it stands in the first line."""
    if record.verdict is not Verdict.PASS:
        return ""
    narrowed = {
        "unproven": not record.proven,
        "parameters overridden": bool(record.overrides),
        f"{record.profile} profile": record.profile != "full",
    }
    said = ", ".join(text for text, applies in narrowed.items() if applies)
    return f" ({said})" if said else ""


def _circumstances(record: Record) -> str:
    device = record.device
    parts = [markdown(str(device.get("name"))), str(device.get("type"))]
    if said := capability(device):
        parts.append(markdown(said))
    if device.get("memory_bytes"):
        parts.append(figures.binary(device["memory_bytes"]) + (" unified" if device.get("unified") else ""))
    commit = record.commit
    revision = code_span(str(commit["revision"])) if commit.get("revision") else "none"
    dirty = commit.get("dirty")
    state = "" if dirty is False else " (dirty)" if dirty else " (not known whether dirty)"
    rows = [
        ("profile", f"{record.profile}: {markdown(record.profile_reason)}"),
        ("device", ", ".join(parts)),
        ("issue, spec", f"{markdown(record.issue)}, {markdown(record.spec)}"),
        ("run", f"{code_span(record.run)}, seed {record.seed}"),
        ("took", f"{figures.duration(record.seconds)}, the subject's trial {figures.duration(record.trial_seconds)}"),
        ("commit", f"{revision}{state}"),
    ]
    return _table(("", ""), rows)


def _clauses(clauses: Sequence[ClauseResult]) -> str:
    if not clauses:
        return "None was judged."
    counts = ", ".join(f"{sum(clause.outcome is one for clause in clauses)} {one}" for one in Outcome)
    # Those that decided the verdict first; the rest in the contract's order.
    shown = [clause for clause in clauses if not _is_trivial(clause)]
    order = sorted(shown, key=lambda clause: (Outcome.FAIL, Outcome.NOT_MEASURED, Outcome.PASS).index(clause.outcome))
    rows = [
        (
            code_span(clause.id),
            f"**{clause.outcome}**" if clause.outcome is not Outcome.PASS else str(clause.outcome),
            markdown(figures.value(clause.value, clause.unit)),
            markdown(_shortened(clause.bound)),
            markdown(_shortened(clause.reason)),
        )
        for clause in order
    ]
    table = _table(("clause", "outcome", "measured", "bound", "why"), rows)
    trivial = ", ".join(code_span(clause.id) for clause in clauses if _is_trivial(clause))
    rest = f"\n\nOf the right type, too: {trivial}." if trivial else ""
    return f"{len(clauses)} judged: {counts}.\n\n{table}{rest}"


def _is_trivial(clause: ClauseResult) -> bool:
    return clause.outcome is Outcome.PASS and clause.id.endswith((".type", ".closed"))


def _tally(mutants: Sequence[MutantRecord]) -> str:
    counts = [(fate, sum(mutant.fate is fate for mutant in mutants)) for fate in Fate]
    return f"{len(mutants)} declared, " + (", ".join(f"{count} {fate}" for fate, count in counts if count) or "none")


def _mutants(mutants: Sequence[MutantRecord]) -> str:
    rows = [
        (
            code_span(mutant.id),
            str(mutant.fate) if mutant.fate is Fate.KILLED else f"**{mutant.fate}**",
            markdown(mutant.defect),
            ", ".join(map(code_span, mutant.violates)),
            ", ".join(map(code_span, mutant.failed)) or markdown(_shortened(mutant.reason)),
            "" if mutant.seconds is None else figures.duration(mutant.seconds),
        )
        for mutant in mutants
    ]
    return _table(("mutant", "fate", "defect", "must fail on", "failed on", "took"), rows) if rows else ""


def _resolved(record: Record) -> str:
    names = list(dict.fromkeys([*record.requested, *record.resolved]))
    rows = [
        (
            name,
            markdown(figures.value(record.requested.get(name))),
            markdown(figures.value(record.resolved[name])) if name in record.resolved else "not read back",
        )
        for name in names
    ]
    return _table(("", "requested", "resolved"), rows)


def _digests(record: Record) -> str:
    rows = [("contract", code_span(record.contract_digest))]
    rows += [("falsifier", code_span(record.falsifier)), ("subject", code_span(record.subject))]
    rows += [(f"harness {markdown(name)}", code_span(value)) for name, value in record.harness.items()]
    rows += [
        (name, f"{log.get('size')} bytes, {code_span(str(log.get('sha256')))}") for name, log in record.logs.items()
    ]
    sources = list(record.sources.items())
    rows += [(code_span(path), code_span(digest)) for path, digest in sources[:_MOST_SOURCES]]
    if len(sources) > _MOST_SOURCES:
        rows.append((f"and {len(sources) - _MOST_SOURCES} more source files", "in record.json"))
    return _table(("what", "version or sha256"), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _shortened(text: str) -> str:
    return text if len(text) <= 300 else text[:299] + "…"
