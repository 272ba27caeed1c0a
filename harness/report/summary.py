"""A record as a page of Markdown: what a reviewer reads in a bundle, and in a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.contract.clauses import ClauseResult
from harness.record import MutantRecord, Record
from harness.report import figures
from harness.report.escaping import code_block, code_span, markdown
from harness.verdict import Fate, Outcome, Verdict

__all__ = ["caveats", "render"]

_MOST_SOURCES = 60


def render(record: Record) -> str:
    """The page; it ends in a newline."""
    sections = [
        f"# {record.verdict}{_beside(record)}: {markdown(record.id)}",
        f"**{markdown(record.title)}**",
        markdown(record.reason),
        "\n".join(f"- {text}" for text in caveats(record)),
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


def caveats(record: Record) -> Iterator[str]:
    """What a reader must know before taking the verdict for more than it is; each a sentence of Markdown."""
    if not record.proven:
        why = (
            "the mutants were skipped"
            if record.mutants_skipped
            else "not every mutant that ran was killed, or none ran"
        )
        yield f"**Unproven**: nothing shows that this falsifier could have failed ({why})."
    if record.overrides:
        changed = ", ".join(code_span(f"{name}={figures.value(value)}") for name, value in record.overrides.items())
        yield f"**Overridden**: {changed}. The run speaks of other parameters than the contract's."
    idle = [mutant for mutant in record.mutants if mutant.fate is Fate.NOT_RUN]
    if idle and not record.mutants_skipped:
        names = ", ".join(f"{code_span(mutant.id)} ({markdown(mutant.reason)})" for mutant in idle)
        yield f"**{len(idle)} of {len(record.mutants)} mutants not run**: {names}."
    if record.profile != "full":
        why = markdown(record.profile_reason)
        yield f"**{record.profile.capitalize()} profile**: the claim speaks of the full one ({why})."
    if not _on_target(record):
        target = [record.target.get("device"), _capability(record.target)]
        yield f"**Not the claim's hardware**: it speaks of {', '.join(markdown(str(part)) for part in target if part)}."
    commit = record.commit
    if commit.get("revision") is None:
        yield f"**No commit**: {markdown(str(commit.get('reason') or 'it is not known which code ran'))}."
    elif commit.get("dirty") is not False:
        state = "had changes that are in no commit" if commit.get("dirty") else "may have had changes"
        yield f"**Dirty tree**: the checkout {state}; the digests below say which files ran."


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
    if capability := _capability(device):
        parts.append(markdown(capability))
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


def _capability(of: Mapping[str, Any]) -> str:
    return f"compute capability {of['compute_capability']}" if of.get("compute_capability") else ""


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


def _on_target(record: Record) -> bool:
    wanted = record.target
    capability, device = wanted.get("compute_capability"), wanted.get("device")
    same_capability = capability is None or record.device.get("compute_capability") == capability
    return same_capability and (device is None or str(device) in str(record.device.get("name")))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _shortened(text: str) -> str:
    return text if len(text) <= 300 else text[:299] + "…"
