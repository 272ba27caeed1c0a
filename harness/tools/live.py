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
from rich.text import Text

from harness.base.device import DeviceClass
from harness.base.vocabulary import Outcome
from harness.evidence.index import Entry, past_runs
from harness.report.escaping import printable
from harness.report.messages.number_text import rough
from harness.report.terminal.printing import Line, Table, wrapped
from harness.report.terminal.run_lines import Lines, Shown
from harness.report.terminal.run_text import step_text, waiting_text
from harness.running import events

__all__ = ["Live"]

_STARTING = "starting"
_NO_ROOM = "waits for processors or memory"
"""The mutants of a claim wait, while the run uses the machine for other trials."""
_ECHO = "^C"
"""The terminal writes it behind the last line. If it began a new line, rich would erase one line too few."""
_BELOW = 2
"""Lines of the terminal that the view leaves free."""


@dataclass
class _Trial:
    """A trial that runs or waits."""

    began: float
    steps: int | None
    doing: str = _STARTING
    step: str = ""


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
    trials: dict[str, _Trial] = field(default_factory=dict)
    ended: int = 0
    """How many mutants have ended."""

    def take(self, event: events.Event, now: float) -> None:
        """Change as an event about the claim says."""
        if isinstance(event, (events.TrialStarted, events.TrialPhase)) and self.waits_since is not None:
            self.waited, self.waits_since = self.waited + now - self.waits_since, None
        match event:
            case events.ClaimWaiting() if self.trials:
                began = self.trials[event.trial].began if event.trial in self.trials else now
                self.trials[event.trial] = _Trial(began, None, waiting_text(event.holders))
            case events.ClaimWaiting():
                self.waits_since = now if self.waits_since is None else self.waits_since
                self.doing = waiting_text(event.holders)
            case events.TrialStarted():
                self.trials[event.trial] = _Trial(now, event.steps)
            case events.TrialPhase():
                (self.trials.get(event.trial) or self).doing = event.doing
            case events.TrialStep() if trial := self.trials.get(event.trial):
                trial.step = step_text(event, trial.steps)
                trial.doing = "" if trial.doing == _STARTING else trial.doing
            case events.TrialFinished():
                self.trials.pop(event.trial, None)
                self.ended += event.trial != events.SUBJECT
                needless = event.trial == events.SUBJECT and event.judgment.outcome is not Outcome.PASS
                self.doing = "sealing" if needless or self.ended == len(self.mutants) else _NO_ROOM

    def state(self, now: float) -> str:
        """Return how far the claim is. Its time includes no wait."""
        if self.waits_since is not None:
            return f"{self.doing}, {rough(now - self.waits_since)}"
        last = "" if self.last is None else f" of about {rough(self.last)}"
        ended = f"{self.ended} of {len(self.mutants)} mutants done" if self.trials and self.mutants else self.doing
        return f"{rough(now - self.began - self.waited)}{last}  {ended}"

    def rows(self, now: float) -> Iterator[tuple[str, str, str, str]]:
        """Yield a row for each trial."""
        for name, trial in self.trials.items():
            number = f" ({self.mutants.index(name) + 1} of {len(self.mutants)})" if name in self.mutants else ""
            doing = "  ".join(filter(None, (trial.doing, trial.step)))
            yield "", f"{'mutant ' if number else ''}{name}{number}", rough(now - trial.began), doing


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
                claim.take(event, now)
        self._lines(event)

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
        now, head = self._clock(), [self._head()] if self._total > 1 else []
        room = self._console.height - _BELOW - len(head)
        claims = list(self._claims.items())[: max(1, room)]
        room -= len(claims)
        shown = [Text(line, "bold") for line in head]
        for name, claim in claims:
            rows = list(claim.rows(now))[: max(0, room)]
            room -= len(rows)
            trials = [text for text, _ in Table(rows, indent=1).lines(None)] if rows else []
            shown += [Text(printable(line)) for line in (f"{name}  {claim.state(now)}", *trials)]
        for line in shown:
            line.no_wrap, line.overflow = True, "ellipsis"
        return Constrain(Group(*shown), self._console.width - len(_ECHO))

    def _head(self) -> str:
        running = sum(claim.waits_since is None for claim in self._claims.values())
        counts = {"waiting": len(self._claims) - running, "to come": self._total - self._done - len(self._claims)}
        rest = "".join(f", {count} {word}" for word, count in counts.items() if count > 0)
        return f"[{self._done}/{self._total}] {rough(self._clock() - self._began)}, {running} running{rest}"
