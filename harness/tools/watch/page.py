"""The page of a watched job. The browser reloads it every few seconds, without a server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from harness.report.messages.number_text import duration
from harness.report.terminal.printing import Table
from harness.tools.html.plot import Figure, Line, drawn
from harness.tools.html.templating import Section, document_page
from harness.tools.watch.job_state import JobState
from harness.tools.watch.text import cost_text, first_refutations, rest_seconds

__all__ = ["watch_page"]

_REFRESH: Final = 5
_GIB: Final = float(1 << 30)
_LAST: Final = 20
"""Maximum checkpoints on the page."""


def watch_page(job: JobState) -> str:
    """Return the page: refutations, clauses with their outcomes so far, losses, checkpoints, and the machine."""
    name = str(job.description.get("name", "job"))
    state = f"It {job.how}" if job.is_over else f"It runs: step {job.step} at second {job.at:.0f}"
    sections: list[Section] = [("Refutations", [*_refutations(job)])]
    figures = [*_figures(job)]
    if figures:
        sections.append(("Over time", [drawn(figures)]))
    sections.append(("Checks", [_checks(job)]))
    if job.checkpoints:
        sections.append(("Checkpoints", [_checkpoints(job)]))
    page = document_page(name, "watched job", state, sections)
    if job.is_over:
        return page
    return page.replace("<head>", f'<head>\n<meta http-equiv="refresh" content="{_REFRESH}">', 1)


def _refutations(job: JobState) -> Iterator[str | Table]:
    rows = []
    for first, more in first_refutations(job):
        rest = rest_seconds(job, first.step, first.at)
        rows.append(
            (
                first.check,
                str(first.step),
                duration(first.at),
                first.why + more,
                cost_text(job, rest) if rest else "",
            )
        )
    yield Table([("check", "step", "time", "why", "cost of the rest"), *rows]) if rows else "Nothing is refuted"
    yield from (f"{fact['action']}: {fact['what']}" for fact in job.acted)
    yield from (f"{fact['verdict']} of {fact['claim']}: {fact['bundle'] or fact['problem']}" for fact in job.sealed)
    yield from (f"The watcher failed at second {fact['at']:.0f}: {fact['why']}" for fact in job.broken)


def _checks(job: JobState) -> Table:
    """Return the decided clauses, then the open ones with the reason."""
    rows = [
        (check.name, "refuted" if check.found else "holds", "") if check.judged or check.found
        else (check.name, "not judged", f"needs {check.needs.replace('`', '')}")
        for check in job.checks
    ]  # fmt: skip
    order = ("refuted", "holds", "not judged")
    return Table([("check", "decided", ""), *sorted(rows, key=lambda row: order.index(row[1]))])


def _checkpoints(job: JobState) -> Table:
    rows = [("step", "time", "bytes", "tensors")]
    for step in sorted(job.checkpoints)[-_LAST:]:
        checkpoint = job.checkpoints[step]
        rows.append(
            (
                str(step),
                duration(checkpoint.at),
                f"{checkpoint.size:,}",
                checkpoint.refused or str(len(checkpoint.tensors)),
            )
        )
    return Table(rows)


def _figures(job: JobState) -> Iterator[Figure]:
    rows = job.series.close().rows if job.step else ()
    for name in ("loss", "learning_rate", "grad_norm"):
        points = [row for row in rows if name in row]
        if points:
            line = Line(name, [float(row["step"]) for row in points], [float(row[name]) for row in points])
            yield Figure(name.replace("_", " ").capitalize(), "", "step", (line,))
    for column, title in (("rss_bytes", "Memory"), ("gpu_process_memory_bytes", "GPU memory")):
        samples = [fact for fact in job.usage if column in fact]
        if len(samples) > 1:
            line = Line(title, [fact["at"] for fact in samples], [float(fact[column]) for fact in samples])
            is_large = max(fact[column] for fact in samples) >= _GIB
            yield Figure(title, "GiB" if is_large else "MiB", "second", (line,), _GIB if is_large else _GIB / 1024)
