"""A record as a page of Markdown: what a reviewer reads in a bundle."""

from __future__ import annotations

from collections.abc import Sequence

from harness.base.vocabulary import Outcome
from harness.contract.clauses import ClauseResult
from harness.evidence.findings import Finding
from harness.judging.record import Record
from harness.report import figures
from harness.report.caveats import caveats
from harness.report.escaping import code_block, code_span, markdown
from harness.report.tables import clause_table, is_trivial, judged, mutant_table, sentence, table, tally, verdict

__all__ = ["render"]

_MOST_SOURCES = 60


def render(record: Record, remarks: Sequence[Finding]) -> str:
    """The page; it ends in a newline.

    Args:
        remarks: what the record says that it does not cover (`harness.evidence.staleness.coverage`).
    """
    sections = [
        f"# {verdict(record, remarks)}: {markdown(record.id)}",
        f"**{markdown(record.title)}**",
        markdown(record.reason),
        "\n".join(f"- {sentence(caveat)}" for caveat in caveats(record, remarks)),
        _circumstances(record),
        "## Clauses",
        _clauses(record.clauses),
        f"## Mutants: {tally(record.mutants)}",
        mutant_table(record.mutants),
        "## Requested and resolved",
        _resolved(record),
        "## What this speaks for",
        _digests(record),
        "## To reproduce",
        code_block(record.command, "sh"),
        "To judge this bundle again, without a GPU, and to see who signed it:",
        code_block("harness verify .\nharness verify . --trusted-key KEY.pub", "sh"),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _circumstances(record: Record) -> str:
    device = record.device
    parts = [markdown(device.name), device.type]
    if device.compute_capability:
        parts.append(markdown(f"compute capability {device.compute_capability}"))
    if device.memory_bytes:
        parts.append(figures.binary(device.memory_bytes) + (" unified" if device.unified else ""))
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
    return table(("", ""), rows)


def _clauses(clauses: Sequence[ClauseResult]) -> str:
    if not clauses:
        return "None was judged."
    # Those that decided the verdict first; the rest in the contract's order.
    shown = [clause for clause in clauses if not is_trivial(clause)]
    order = sorted(shown, key=lambda clause: (Outcome.FAIL, Outcome.NOT_MEASURED, Outcome.PASS).index(clause.outcome))
    trivial = ", ".join(code_span(clause.id) for clause in clauses if is_trivial(clause))
    rest = f"\n\nOf the right type, too: {trivial}." if trivial else ""
    return f"{judged(clauses)}.\n\n{clause_table(order)}{rest}"


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
    return table(("", "requested", "resolved"), rows)


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
    return table(("what", "version or sha256"), rows)
