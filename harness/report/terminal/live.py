"""The live view on a terminal: what runs now, for how long, and how long it took last time."""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO

from rich.console import Console, Group
from rich.constrain import Constrain
from rich.live import Live as RichLive
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from harness.base.device import DeviceClass
from harness.base.vocabulary import Outcome
from harness.evidence.index import Entry, past_runs
from harness.report.escaping import printable
from harness.report.messages.number_text import rough
from harness.report.terminal.printing import Line, wrapped
from harness.report.terminal.run_lines import Lines, Shown
from harness.report.terminal.run_text import step_text, waiting_text
from harness.running import events

__all__ = ["Live"]

_BAR = 12
"""Columns of a progress bar."""
_STARTING = "starting"
_NO_ROOM = "waits for processors or memory"
"""The mutants of a claim wait, while the run uses the machine for other trials."""
_ECHO = "^C"
"""The terminal writes it behind the last line. If it began a new line, rich would erase one line too few."""
_BELOW = 2
"""Lines of the terminal that the view leaves free."""


@dataclass
class _Trial:
    """A trial that runs."""

    began: float
    steps: int | None
    doing: str = _STARTING
    step: events.TrialStep | None = None


@dataclass
class _Claim:
    """A claim that runs or waits."""

    began: float
    mutants: tuple[str, ...]
    last: float | None
    """How many seconds its last run took."""
    doing: str = _STARTING
    waited: float = 0.0
    """Seconds of the waits that are over."""
    waits_since: float | None = None
    waits_for: str = ""
    trials: dict[str, _Trial] = field(default_factory=dict)
    ended: int = 0
    """How many mutants have ended."""

    def seconds(self, now: float) -> float:
        """Return the time of the claim so far, without waits."""
        return now - self.began - self.waited - self.waiting(now)

    def waiting(self, now: float) -> float:
        """Return how long the present wait has lasted."""
        return 0.0 if self.waits_since is None else now - self.waits_since

    def works(self, now: float) -> None:
        """End the present wait."""
        self.waited, self.waits_since = self.waited + self.waiting(now), None


class Live:
    """Writes the lines of a run, and draws what runs. rich respects `NO_COLOR`, `FORCE_COLOR` and `TERM`."""

    def __init__(
        self,
        stream: IO[str],
        shown: Shown,
        earlier: Callable[[], Iterable[Entry]] = tuple,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args:
        earlier: reads the evidence of earlier runs.
        clock: the seconds since any moment.
        """
        self._console = Console(file=stream, highlight=False)
        self._earlier, self._clock, self._began = earlier, clock, clock()
        self._lines = Lines(self._write, shown, lambda: self._console.width, True, clock)
        self._live: RichLive | None = None
        self._claims: dict[str, _Claim] = {}
        self._total = self._done = 0
        self._past: dict[tuple[str, str, str, str], float] | None = None
        atexit.register(self._stop)  # shows the cursor again, however the run ends

    def __call__(self, event: events.Event) -> None:
        """Show one event."""
        now = self._clock()
        match event:
            case events.ClaimPassedOver():
                pass
            case events.RunStarted():
                self._total, self._began = len(event.claims), now
            case events.ClaimPlanned():
                if not event.obstacle:
                    self._claims[event.contract.id] = _Claim(now, event.mutants, self._last(event))
                    self._start()
            case events.ClaimFinished():
                self._claims.pop(event.record.id, None)
                self._done += 1
                if self._total <= 1:
                    self._stop()
            case events.RunFinished():
                self._stop()
            case _ if (claim := self._claims.get(event.id)) is not None:
                self._change(claim, event, now)
        self._lines(event)

    def _change(self, claim: _Claim, event: events.Event, now: float) -> None:
        match event:
            case events.ClaimWaiting() if claim.trials:
                known = claim.trials.get(event.trial)
                claim.trials[event.trial] = _Trial(known.began if known else now, None, waiting_text(event.holders))
            case events.ClaimWaiting():
                claim.waits_since = now if claim.waits_since is None else claim.waits_since
                claim.waits_for = waiting_text(event.holders)
            case events.TrialStarted():
                claim.works(now)
                claim.trials[event.trial] = _Trial(now, event.steps)
            case events.TrialPhase():
                claim.works(now)
                if event.trial in claim.trials:
                    claim.trials[event.trial].doing = event.doing
                else:
                    claim.doing = event.doing
            case events.TrialStep():
                if event.trial in claim.trials:
                    trial = claim.trials[event.trial]
                    trial.step, trial.doing = event, "" if trial.doing == _STARTING else trial.doing
            case events.TrialFinished():
                claim.trials.pop(event.trial, None)
                claim.ended += event.trial != events.SUBJECT
                needless = event.trial == events.SUBJECT and event.judgment.outcome is not Outcome.PASS
                claim.doing = "sealing" if needless or claim.ended == len(claim.mutants) else _NO_ROOM
            case _:
                pass

    def _write(self, line: Line) -> None:
        text, style = line
        for part in wrapped(printable(text), self._console.width):
            self._console.print(Text(part, style=style), soft_wrap=True)

    def _start(self) -> None:
        if self._live is None:
            self._live = RichLive(
                console=self._console, refresh_per_second=4, transient=True, get_renderable=self._view
            )
            self._live.start()

    def _stop(self) -> None:
        if self._live is not None:
            self._claims.clear()
            self._live.stop()
            self._live = None

    def _last(self, event: events.ClaimPlanned) -> float | None:
        """Return the seconds of the claim's last run with the same class of device, profile and subject."""
        if self._past is None:
            self._past = past_runs(self._earlier())
        key = (event.contract.id, event.profile, str(DeviceClass.of(event.device)), event.contract.subject)
        return self._past.get(key)

    def _view(self) -> Constrain:
        """Return what runs now. Trials are left out if the terminal has too few lines."""
        now, claims = self._clock(), list(self._claims.items())
        room = self._console.height - _BELOW - (self._total > 1)
        rows: list[Table | Text] = []
        if self._total > 1:
            rows.append(self._line(self._head(now), "bold"))
        shown = claims[: max(1, room)]
        room -= len(shown)
        for name, claim in shown:
            rows.append(self._line(f"{name}  {self._state(claim, now)}", ""))
            trials = list(claim.trials.items())[: max(0, room)]
            room -= len(trials)
            if trials:
                rows.append(self._trials(claim, trials, now))
        return Constrain(Group(*rows), self._console.width - len(_ECHO))

    def _line(self, text: str, style: str) -> Text:
        return Text(printable(text), style, overflow="ellipsis", no_wrap=True)

    def _head(self, now: float) -> str:
        running = sum(claim.waits_since is None for claim in self._claims.values())
        counts = {"waiting": len(self._claims) - running, "to come": self._total - self._done - len(self._claims)}
        rest = "".join(f", {count} {word}" for word, count in counts.items() if count > 0)
        return f"[{self._done}/{self._total}] {rough(now - self._began)}, {running} running{rest}"

    def _state(self, claim: _Claim, now: float) -> str:
        if claim.waits_since is not None:
            return f"{claim.waits_for}, {rough(claim.waiting(now))}"
        last = "" if claim.last is None else f" of about {rough(claim.last)}"
        ended = f"  {claim.ended} of {len(claim.mutants)} mutants done" if claim.trials and claim.mutants else ""
        return f"{rough(claim.seconds(now))}{last}{ended or f'  {claim.doing}'}"

    def _trials(self, claim: _Claim, trials: list[tuple[str, _Trial]], now: float) -> Table:
        table = Table.grid(padding=(0, 1, 0, 0), expand=True)
        for column in range(5):
            table.add_column(ratio=1 if column == 4 else None, no_wrap=True, overflow="ellipsis")
        for name, trial in trials:
            table.add_row("  ", *self._cells(claim, name, trial, now))
        return table

    def _cells(self, claim: _Claim, name: str, trial: _Trial, now: float) -> Iterator[Text | ProgressBar]:
        number = f" ({claim.mutants.index(name) + 1} of {len(claim.mutants)})" if name in claim.mutants else ""
        yield Text(f"{'mutant ' if number else ''}{name}{number}")
        yield Text(rough(now - trial.began), justify="right")
        bar = trial.steps and trial.step
        yield ProgressBar(total=trial.steps, completed=trial.step.step, width=_BAR) if bar and trial.step else Text("")
        step = "" if trial.step is None else step_text(trial.step, trial.steps)
        yield Text(printable("  ".join(filter(None, (trial.doing, step)))))
