"""`harness history ID`: shows the measurements of a claim over time and devices."""

from __future__ import annotations

import importlib.util
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.base.extras import installation
from harness.base.vocabulary import ExitStatus
from harness.cli.options import evidence_option
from harness.contract.project import Project
from harness.evidence import index, measurement_history
from harness.evidence.judged_entries import unsound, without
from harness.evidence.measurement_history import Shift, newest_of_series
from harness.evidence.repeats import Repeats, repeats
from harness.machine.cache_folder import cache_folder
from harness.report.messages import noise_text, number_text
from harness.report.status_table import unreadable_line
from harness.report.terminal.printing import Block, Table, filled, tell, tell_all
from harness.report.terminal.progress_line import progress_line

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["command", "need_pandas"]


@click.command("history")
@click.argument("identifier", metavar="ID")
@click.option(
    "--measurement", "names", multiple=True, metavar="NAME", help="Only this measurement, run by run; repeatable."
)
@click.option("--device", metavar="TEXT", default="", help="Only devices with this in their name, such as H200.")
@evidence_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line, one for each measurement.")
def command(identifier: str, names: tuple[str, ...], device: str, evidence: Path | None, as_json: bool) -> ExitStatus:
    """Show how the measurements of a claim moved: the numbers that its clauses look at, and the time of its trials.

    Without --measurement, the newest value of each is shown beside the earlier ones; with it, every run. Only runs of
    the same class of device, profile, subject and parameters are compared. A value is above or below if it left the
    noise of the earlier runs: their median, plus or minus a multiple of their scatter that one healthy value in a
    hundred exceeds. With fewer than five earlier runs there is no answer.

    The first line of a series says how many runs of the same code (contract and sources) FAIL, with the Wilson interval
    of that share (95 %). FLAKY means that the same code passed and failed. It changes no verdict and no status: a FAIL
    stands.

    The exit status is 3 if there is no run, else 0.
    """
    need_pandas("harness history")

    project = Project.find()
    place = evidence or project.evidence
    with progress_line("indexing bundles") as watch:
        found = index.read(place, identifier, cache_folder(), watch)
        found = without(found, unsound(found.entries))
    for one in found.unreadable:
        tell(unreadable_line(one), err=True)
    entries = [entry for entry in found.entries if device in str(entry.device_class)]
    if not entries:
        project.contract(identifier)  # refuses an unknown claim, and suggests the nearest
    table = measurement_history.measured(entries, index.measurements(place, identifier, cache_folder()))
    known = set(table["measurement"])
    for name in names:
        if entries and name not in known:
            raise click.BadParameter(f"no run measured {name!r}; there are {', '.join(sorted(known))}")
    if names:
        table = table[table["measurement"].isin(names)]
    if as_json:
        click.echo(table.assign(format=1).to_json(orient="records", lines=True, date_format="iso"), nl=False)
    else:
        tell_all(_runs(table) if names else _newest(table, repeats(entries)))
        idle = sum(not measurement_history.ran(entry) for entry in entries)
        told = f"; {idle} measured nothing" if idle else ""
        tell(f"{number_text.counted(len(entries), 'run')} of {identifier}{told}")
    return ExitStatus.PASS if entries else ExitStatus.NOT_MEASURED


def need_pandas(what: str) -> None:
    """Refuse if pandas is not installed, with the remedy."""
    if importlib.util.find_spec("pandas") is None:
        raise click.UsageError(f"{what} needs pandas: {installation('analysis')}")


def _newest(table: pd.DataFrame, known: Sequence[Repeats]) -> Iterator[Block]:
    """Yield how often the same code failed, and the newest value of each measurement, by series."""
    for series, rows in newest_of_series(table).groupby("series", sort=False):
        of_series = table[table["series"] == series]
        first, last = of_series["started"].min(), of_series["started"].max()
        count = of_series["run"].nunique()
        yield f"{series}: {number_text.counted(count, 'run')}, {first:%Y-%m-%d} to {last:%Y-%m-%d}"
        for place, one in enumerate(one for one in known if one.series == series):
            if one.is_flaky or place == 0:
                yield _repeated(one)
        cells = [
            (row["measurement"], number_text.value(row["value"], row["unit"]), _noise(row), _shift(row))
            for row in rows.sort_values("measurement").to_dict("records")
        ]
        yield Table(filled([("measurement", "newest", "earlier runs", "newest is"), *cells]))
        yield ""


def _repeated(one: Repeats) -> str:
    low, high = one.interval
    runs = one.passed + one.failed
    undecided = f", {one.undecided} undecided" if one.undecided else ""
    return (
        f"same code{', FLAKY' if one.is_flaky else ''}: "
        f"{one.failed} of {number_text.counted(runs, 'run')} FAIL{undecided}, "
        f"so {100 * low:.3g} % to {100 * high:.3g} % of runs (95 %), {one.first:%Y-%m-%d} to {one.last:%Y-%m-%d}"
    )


def _runs(table: pd.DataFrame) -> Iterator[Block]:
    """Yield every run of the chosen measurements, the oldest first."""
    for (series, name), rows in table.groupby(["series", "measurement"], sort=False):
        yield f"{name} on {series}"
        cells = [
            (
                f"{row['started']:%Y-%m-%d %H:%M}",
                row["verdict"],
                row["commit"][:10],
                number_text.value(row["value"], row["unit"]),
                _shift(row),
            )
            for row in rows.to_dict("records")
        ]
        head = ("started (UTC)", "verdict", "commit", "value", "against those before")
        yield Table(filled([head, *cells]))
        yield ""


def _noise(row: Mapping[Hashable, Any]) -> str:
    return "" if not row["earlier"] else noise_text.earlier(row["earlier"], row["median"], row["scatter"], row["unit"])


def _shift(row: Mapping[Hashable, Any]) -> str:
    shift = Shift(row["shift"])
    return "" if shift is Shift.UNKNOWN else noise_text.shift(shift, row["earlier"])
