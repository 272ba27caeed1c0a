"""`harness diff`: shows what changed between two runs of a claim."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from harness.base.shortening import cut, first
from harness.base.vocabulary import ExitStatus
from harness.cli.history import need_pandas
from harness.cli.options import evidence_option
from harness.contract.project import Project
from harness.evidence import index, measurement_history
from harness.evidence.difference import Change, Difference, DifferenceError, Moved, SeriesChange, compare
from harness.evidence.index import Entry, read
from harness.evidence.measurement_history import Noise, Shift, ran, series
from harness.evidence.verification import verify_all
from harness.machine.cache_folder import cache_folder
from harness.report.messages import noise_text, number_text
from harness.report.terminal.printing import Block, Table, filled, tell, tell_all, tell_json
from harness.report.terminal.progress_line import progress_line

__all__ = ["command"]

_LONGEST = 60
_DIGEST = re.compile("[0-9a-f]{40,64}")


@click.command("diff")
@click.argument("runs", nargs=-1, required=True, metavar="ID | A B")
@evidence_option
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def command(runs: tuple[str, ...], evidence: Path | None, as_json: bool) -> ExitStatus:
    """Show what changed between two runs of a claim: environment, contract, parameters, sources, clauses,
    measurements, mutants and step series.

    A and B are bundles: folders, or names of runs. With the ID of a claim, its newest run is compared with the one
    before it on the same class of device and in the same profile; runs in which nothing ran are skipped.

    For each measurement that differs, diff says whether B left the noise of the earlier runs on its class of device
    (see `harness history --help`). The exit status is 0 whatever changed.
    """
    need_pandas("harness diff")

    if len(runs) > 2:
        raise click.UsageError("name two bundles, or one claim")
    project = Project.around()  # comparing two bundles needs no project
    place = evidence or (project.evidence if project else None)
    before, after = _newest_two(runs[0], place, project) if len(runs) == 1 else (_bundle(run, place) for run in runs)
    try:
        difference = compare(before, after, _noise(after, place))
    except DifferenceError as error:
        raise click.UsageError(str(error)) from error
    for verification in verify_all([before, after]):
        if not verification.sound:
            raise click.UsageError(f"{verification.path} is unsound; harness verify says why")
    if as_json:
        tell_json({"format": 1, **difference.to_json()})
    else:
        tell_all(_lines(difference))
    return ExitStatus.PASS


def _entries(place: Path, claim: str | None = None) -> tuple[Entry, ...]:
    with progress_line("indexing bundles") as watch:
        return read(place, claim, cache_folder(), watch).entries


def _bundle(run: str, place: Path | None) -> Path:
    """Return the folder of a bundle, given the folder or the name of its run."""
    if os.sep in run or Path(run).exists():
        return Path(run)
    found = [entry.path for entry in _entries(place) if entry.run == run] if place else []
    if len(found) == 1:
        return found[0]
    why = f"{len(found)} bundles are of a run of this name" if found else "there is no such bundle and no such run"
    raise click.BadParameter(f"{run}: {why}; name the folder of a bundle")


def _newest_two(claim: str, place: Path | None, project: Project | None) -> tuple[Path, Path]:
    if place is None or project is None:
        raise click.UsageError("name two bundles; a claim can be named inside its project only")
    entries = sorted(_entries(place, claim), key=lambda one: (one.when, one.run))
    if not entries:
        project.contract(claim)  # refuses an unknown claim, and suggests the nearest
        raise click.UsageError(f"there is no run of {claim} under {place}")
    idle = [one.run for one in entries if not ran(one)]
    if idle:
        tell(f"harness: passed over {first(idle[::-1], 1)}: nothing ran", err=True)
    entries = [one for one in entries if ran(one)]
    if not entries:
        raise click.UsageError(f"no run of {claim} under {place} measured anything; name two bundles")
    newest = entries[-1]
    before = [one for one in entries[:-1] if series(one) == series(newest)]
    if not before:
        raise click.UsageError(f"{newest.run} is the only run of {claim} on {series(newest)}; name two bundles")
    return before[-1].path, newest.path


def _noise(after: Path, place: Path | None) -> dict[str, Noise]:
    """Return the noise of the runs before B: those in the project's evidence, or beside B."""
    after = Path(os.path.realpath(after))
    inside = place is not None and after.is_relative_to(os.path.realpath(place))
    where, cache = (Path(os.path.realpath(place)), cache_folder()) if place and inside else (after.parent, None)
    with progress_line("indexing bundles") as watch:
        entries = index.read(where, cache=cache, watch=watch).entries
    this = next((entry for entry in entries if entry.path == after), None)
    if this is None:
        return {}
    return measurement_history.earlier_noise(this, entries, index.measurements(where, this.id, cache))


def _lines(difference: Difference) -> Iterator[Block]:
    yield f"{difference.claim}"
    yield f"  A {os.path.relpath(difference.before)}"
    yield f"  B {os.path.relpath(difference.after)}"
    parts: list[tuple[str, tuple[Change, ...]]] = [
        ("run", difference.run),
        ("environment", difference.environment),
        ("contract", difference.contract),
        ("parameters", difference.parameters),
        ("sources", difference.sources),
        ("clauses", difference.clauses),
        ("mutants", difference.mutants),
    ]
    for name, changes in parts:
        yield from _part(name, [(one.where, _text(one.before), _text(one.after)) for one in changes])
    moved = [_moved(one) for one in difference.measurements]
    yield from _part("measurements", moved, ("", "A", "B", "change", "earlier runs", "B is"))
    if difference.same:
        yield f"  and {difference.same} equal to the last digit"
    yield from _part("step series", [_series(one) for one in difference.series])


def _part(name: str, rows: Sequence[Sequence[str]], head: Sequence[str] = ("", "A", "B")) -> Iterator[Block]:
    if not rows:
        yield f"{name}: the same"
        return
    yield f"{name}:"
    yield Table(filled([head, *rows]) if len(head) == len(rows[0]) else rows)


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return cut(_inline(value), _LONGEST)


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_inline(item)}" for name, item in value.items() if item not in ("", [], None))
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_inline, value))
    if isinstance(value, str):
        return f"{value[:12]}…" if _DIGEST.fullmatch(value) else value
    return number_text.value(value)


def _moved(one: Moved) -> tuple[str, ...]:
    noise = one.noise
    return (
        one.name,
        *(number_text.value(value, one.unit) for value in (one.before, one.after)),
        noise_text.change(one.before, one.after),
        noise_text.earlier(noise.count, noise.middle, noise.scatter, one.unit) if noise.count else "",
        "" if one.shift in (None, Shift.UNKNOWN) else noise_text.shift(one.shift, noise.count),
    )


def _series(one: SeriesChange) -> tuple[str, ...]:
    ends = f"at the end {number_text.value(one.last_before)} and {number_text.value(one.last_after)}"
    if not one.steps:
        return one.name, "in one of them only", "", ends
    if one.first is None:
        return one.name, f"{one.steps} steps the same, the rest in one of them only", "", ends
    return one.name, f"from step {one.first} on", f"by at most {number_text.value(one.largest)} (step {one.at})", ends
