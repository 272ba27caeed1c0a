"""Samples the machine during a trial, from outside the trial.

    sampler = Sampler(gpu)
    sampler.watch(process.pid)
    …
    telemetry = sampler.stop()
    telemetry.rows[-1][COLUMNS.index("rss_bytes")]

The sampler reads /proc through psutil and queries NVML. It creates no CUDA context and never raises. A
value that cannot be read is None. `reasons` states why, once for each column.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from harness.base.shortening import described
from harness.machine.process_tree import ProcessTree
from harness.machine.residency import DriverResidency, GpuProbe

if TYPE_CHECKING:
    from harness.machine.host import Gpu

__all__ = ["COLUMNS", "DriverResidency", "Row", "Sampler", "Telemetry"]

Row = tuple[float | int | None, ...]
"""One sample, in the order of COLUMNS."""

COLUMNS: tuple[str, ...] = (
    "seconds",  # since the first process was watched
    "processes",  # in the tree of the watched processes
    "rss_bytes",  # resident memory of that tree; a page that several processes share counts for each of them
    "cpu_percent",  # of one processor, used by that tree since the previous sample
    "system_available_bytes",
    "gpu_utilisation_percent",  # share of the driver's last sample period in which a kernel of any process ran
    "gpu_memory_used_bytes",  # device memory used by all processes
    "gpu_process_memory_bytes",  # device memory used by the tree; cudaMallocManaged is not counted in full
    "gpu_power_watts",
    "gpu_temperature_celsius",
    "gpu_sm_clock_mhz",
)

_SHARE = 0.01
"""Maximum share of one CPU for sampling. If samples are expensive, the interval grows."""
_LONGEST_WAIT = 10.0
_SAMPLE_SECONDS = 1.0
_STOP_SECONDS = 5.0


@final
@dataclass(frozen=True)
class Telemetry:
    """All samples. A cell without a reading is None."""

    rows: tuple[Row, ...]
    reasons: Mapping[str, str]
    """Why cells of a column are None, by column."""
    residency: DriverResidency

    def peak(self, column: str) -> float | int | None:
        """Return the largest reading of a column; None if it has none."""
        index = COLUMNS.index(column)
        return max((cell for row in self.rows if (cell := row[index]) is not None), default=None)


@final
class Sampler:
    """Samples the trees of watched processes, and one GPU, until it is stopped."""

    def __init__(self, gpu: Gpu | None, interval: float = 0.25) -> None:
        """Args:
        gpu: the leased device; None if the trial has none.
        interval: seconds between two samples; longer if samples are expensive.
        """
        self._interval = interval
        self._tree = ProcessTree()
        self._probe = GpuProbe(gpu)
        self._rows: list[Row] = []
        self._reasons: dict[str, str] = {}
        self._started: float | None = None
        self._over = False
        self._wake = threading.Event()
        self._news = threading.Condition()
        self._begun = 0
        self._done = 0
        self._thread: threading.Thread | None = None
        self._result: Telemetry | None = None

    @property
    def latest(self) -> Mapping[str, float | int | None]:
        """The newest sample by column; empty before the first one."""
        rows = self._rows
        return dict(zip(COLUMNS, rows[-1], strict=True)) if rows else {}

    def watch(self, pid: int) -> None:
        """Also sample this process and its descendants. The first call starts the clock and the sampling."""
        self._tree.add(pid)
        if self._started is None and not self._over:
            self._started = time.monotonic()
            self._thread = threading.Thread(target=self._loop, name="harness-telemetry", daemon=True)
            self._thread.start()

    def starved(self) -> float:
        """Return the seconds that a thread of the monitored processes has waited for a CPU; 0 if unknown."""
        return max(self._tree.delays().values(), default=0) / 1e9

    def sample(self) -> None:
        """Take one sample now, such as before a process ends. Returns when it is taken, after 1 s at the latest.

        The sampler's thread takes it, so that a driver that hangs does not block the caller.
        """
        if self._thread is None or self._over:
            return
        with self._news:
            target = self._begun + 1
            self._wake.set()
            self._news.wait_for(lambda: self._done >= target, timeout=_SAMPLE_SECONDS)

    def stop(self) -> Telemetry:
        """Stop sampling and return all samples. A second call returns the same."""
        self._over = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)
        if self._result is None:
            rows = tuple(self._rows)
            reasons = dict(self._reasons)
            if self._thread is not None and self._thread.is_alive():
                # Only a driver call that never returns can block the thread. It ends with that call or the process.
                reasons.setdefault("seconds", f"sampling hung and was given up after {_STOP_SECONDS:g} s")
            if not rows:
                reasons.setdefault("seconds", "nothing was sampled")
            self._result = Telemetry(rows, reasons, self._probe.residency())
        return self._result

    def _loop(self) -> None:
        self._sample()  # so that a very short trial has a sample; its cost is mostly imports, so it is not measured
        cost = 0.0
        while True:
            self._wake.wait(min(max(self._interval, cost / _SHARE), _LONGEST_WAIT))
            self._wake.clear()
            if self._over:
                return
            before = time.thread_time()
            self._sample()
            cost = time.thread_time() - before

    def _sample(self) -> None:
        with self._news:
            self._begun += 1
        try:
            row = self._row()
        except Exception as error:  # a lost sample must not end the trial
            self._reasons.setdefault("seconds", f"a sample was lost: {described(error)}")
        else:
            if self._result is None:  # else stop() has returned already
                self._rows.append(row)
        with self._news:
            self._done = self._begun
            self._news.notify_all()

    def _row(self) -> Row:
        assert self._started is not None
        seconds = time.monotonic() - self._started
        cells: dict[str, float | int | None] = {"seconds": round(seconds, 3)}
        for readings, reasons in (self._tree.read(), self._probe.read(self._tree.owns)):
            cells.update(readings)
            for column, reason in reasons.items():
                self._reasons.setdefault(column, reason)
        return tuple(cells.get(column) for column in COLUMNS)
