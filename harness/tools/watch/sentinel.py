"""Watches a loop from its own process, weights included.

    with Sentinel("tuesday", steps=5000, learning_rate=3e-4, on_refute="stop") as sentinel:
        for step, batch in enumerate(batches, 1):
            loss = train(model, batch)
            sentinel.step(step, loss=loss, batch=batch, weights=model)

It takes the parameters of `harness watch`. With `on_refute="stop"`, `step` raises `Refuted` at the refuted step. A
sentinel that fails prints the error, and the loop continues.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, final

from harness.base.shortening import described
from harness.contract.project import Project
from harness.machine.host import has_gpu_driver, probe
from harness.tools.watch.checkpoint_reading import checkpoint_fact
from harness.tools.watch.checks import CHECKS
from harness.tools.watch.claims import job_claim
from harness.tools.watch.contract import contract_of
from harness.tools.watch.facts import FACTS, Fact, FactFile, new_state
from harness.tools.watch.given import given_of
from harness.tools.watch.job_state import JobState, Refutation
from harness.tools.watch.machine_reading import MachineReader
from harness.tools.watch.sealing import Judge
from harness.tools.watch.text import summary

__all__ = ["Refuted", "Sentinel", "is_refuted"]

_SAMPLE_EVERY: Final = 5.0
_SAMPLED: Final = 4096
"""Number of elements of a tensor whose bytes are compared, in addition to the sum of all elements."""
_PART: Final = 1 << 22
"""Number of elements that are summed at once, in float64."""


class Refuted(RuntimeError):
    """The run is refuted. The text states why."""

    def __init__(self, refutation: Refutation) -> None:
        super().__init__(f"{refutation.check}: {refutation.text}")
        self.refutation = refutation


@final
class Sentinel:
    """The watcher of a loop."""

    def __init__(
        self,
        name: str,
        *,
        on_refute: str = "log",
        state: Path | None = None,
        evidence: Path | None = None,
        issue: str = "WATCH",
        weights_every: int = 100,
        project: Project | None = None,
        **given: Any,
    ) -> None:
        """Args:
        on_refute: "log", or "stop" to raise `Refuted`.
        state: the folder for the facts; by default one in the user's cache.
        weights_every: number of steps between two checks of the weights. given: parameters of `harness watch`, such as
        steps=5000.

        Raises:
            ValueError: a parameter is wrong.
        """
        if on_refute not in ("log", "stop"):
            raise ValueError(f"on_refute is log or stop, not {on_refute!r}")
        self._stops, self._every, self._given = on_refute == "stop", weights_every, given_of(given)
        if strange := sorted(given.keys() - vars(self._given).keys()):
            raise ValueError(f"a watch has no parameter {strange[0]!r}")
        self._sample_at, self._count, self._is_broken = 0.0, 0, False
        self._epoch, self._began = time.time(), time.monotonic()
        self._project = project or Project.around() or Project(Path.cwd(), Path("contracts"), Path("evidence"), ())
        self.job = JobState(self._given, CHECKS)
        self._pool = ThreadPoolExecutor(1, "harness-sentinel")
        self._reading: list[Future[Fact]] = []
        self._guarded(lambda: self._begin(name, state, evidence, issue))

    def _begin(self, name: str, state: Path | None, evidence: Path | None, issue: str) -> None:
        self._facts = FactFile(new_state(name, state) / FACTS)
        host = probe(self._project.root)
        self._machine = MachineReader(host, os.getpid(), None, 0)
        values = {key: value for key, value in vars(self._given).items() if value is not None}
        job = {"fact": "job", "at": 0.0, "name": name, "issue": issue, "told": " ".join(sys.argv), "folder": "",
               "values": values, "epoch": self._epoch, "runs_on": "" if has_gpu_driver() else "cpu", "pid": os.getpid(),
               "root": str(self._project.root), "is_local": True, "is_ours": True, "recorder": "", "roles": [],
               "orders": {"without": []}}  # fmt: skip
        contract = contract_of(job, self._given, None, self._facts.path, self._project.root)
        claim = job_claim(contract, self._given, host, f"python {sys.argv[0]}")
        self._judge = Judge(self._project, host, evidence, [claim], {})
        self._add(job)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        status = None if isinstance(error, (Refuted, KeyboardInterrupt)) else int(error is not None)
        self.end(int(bool(error.code)) if isinstance(error, SystemExit) else status)

    def step(self, step: int, *, batch: Any = None, weights: Any = None, **values: Any) -> None:
        """Report a step, from 1: its loss, learning_rate, grad_norm, epoch, and any other numbers.

        Args:
            batch: a number that identifies the batch, or its bytes, an array or a tensor.
            weights: a module or a mapping of tensors, which is checked every `weights_every` steps.

        Raises:
            Refuted: the run is refuted, and must stop.
        """
        texts = {"step": str(step), **{name: _text(value) for name, value in values.items() if value is not None}}
        if batch is not None:
            texts["batch"] = _text(batch if isinstance(batch, (int, float)) else zlib.crc32(_bytes(batch)))
        self._guarded(lambda: self._step(step, texts, weights))
        self._raise()

    def checkpoint(self, step: int, path: Path) -> None:
        """Report a complete checkpoint. It is read in a thread."""
        self._guarded(lambda: self._reading.append(self._pool.submit(checkpoint_fact, step, Path(path), self._now)))

    def end(self, status: int | None = 0) -> None:
        """Report the end, and print the summary. The status is None if a refutation ended the loop."""
        self._guarded(lambda: self._end(status))

    def _step(self, step: int, texts: Mapping[str, str], weights: Any) -> None:
        self._count += 1
        self._add({"fact": "output", "at": self._now, "file": "process", "offset": self._count,
                   "events": [["step", texts, ""]]})  # fmt: skip
        if weights is not None and step % self._every == 0:
            self._add({"fact": "sums", "at": self._now, "step": step, "sums": _sums(weights)})
        if self._now >= self._sample_at:
            self._sample_at = self._now + _SAMPLE_EVERY
            self._add(self._machine.sample(self._now))
        self._take_readings(wait=False)
        self._conclude()

    def _end(self, status: int | None) -> None:
        if self.job.is_over:
            return
        self._take_readings(wait=True)
        how = "was stopped" if status is None else f"ended with status {status}"
        self._add({"fact": "ended", "at": self._now, "status": status, "how": how})
        self._conclude()
        for line in summary(self.job):
            print(line, file=sys.stderr)

    def _take_readings(self, *, wait: bool) -> None:
        for reading in [reading for reading in self._reading if wait or reading.done()]:
            self._reading.remove(reading)
            self._add(reading.result())

    def _conclude(self) -> None:
        self._judge.conclude(
            self.job, self._facts.path, self._add, lambda line: print(line, file=sys.stderr, flush=True)
        )

    @property
    def refuted(self) -> Refutation | None:
        """The first refutation; None without one."""
        return self.job.reported[0] if self.job.reported else None

    def _raise(self) -> None:
        refuted = self.refuted
        if not self._stops or self._is_broken or self.job.acted or refuted is None:
            return
        stop = {"fact": "acted", "at": self._now, "action": "stop", "ends": True, "what": "the loop was told to stop"}
        self._guarded(lambda: self._add(stop))
        if not self._is_broken:
            raise Refuted(refuted)

    def _guarded(self, work: Callable[[], Any]) -> None:
        """Call `work`, unless the sentinel has failed. A failure is printed, and the loop continues."""
        if self._is_broken:
            return
        try:
            work()
        except Exception as error:
            self._is_broken = True
            warnings.warn(f"THE SENTINEL FAILED, and the loop goes on unwatched: {described(error)}", stacklevel=3)

    def _add(self, fact: Fact) -> None:
        self.job.apply(self._facts.append(fact))
        if self.job.failed:
            raise RuntimeError(self.job.failed)

    @property
    def _now(self) -> float:
        return round(time.monotonic() - self._began, 3)


def _text(value: Any) -> str:
    if hasattr(value, "detach"):
        value = value.detach().item()
    return repr(value) if isinstance(value, int) else repr(float(value))


def _bytes(batch: Any) -> bytes:
    """Return the bytes of a batch's tensors, in order."""
    if isinstance(batch, bytes):
        return batch
    if isinstance(batch, Mapping):
        return b"".join(_bytes(value) for value in batch.values())
    if isinstance(batch, (list, tuple)):
        return b"".join(_bytes(value) for value in batch)
    if hasattr(batch, "detach"):
        import torch

        batch = batch.detach().cpu().contiguous().flatten()
        batch = batch.view(torch.uint8) if batch.numel() else batch
        return bytes(batch.numpy().tobytes())
    return bytes(batch.tobytes()) if hasattr(batch, "tobytes") else repr(batch).encode()


def _sums(weights: Any) -> dict[str, str]:
    """Return the sum of magnitudes of each parameter, and a checksum of its first elements."""
    import torch

    named = weights.items() if isinstance(weights, Mapping) else weights.named_parameters()
    with torch.no_grad():
        return {name: _sum(tensor.detach()) for name, tensor in named}


def _sum(weights: Any) -> str:
    flat = weights.flatten()
    total = sum(float(part.double().abs().sum()) for part in flat.split(_PART))
    return f"{total!r} {zlib.crc32(_bytes(flat[:_SAMPLED]))}"


def is_refuted(sentinel: Sentinel | None, step: int, **values: Any) -> bool:
    """Report a step, and return whether the run must stop, as rank 0 of torch.distributed decides.

    If only one process stopped, the others would wait for it.

    Args:
        sentinel: the sentinel of rank 0; None in the others.
        values: of `Sentinel.step`.
    """
    import torch

    stops = False
    try:
        if sentinel is not None:
            sentinel.step(step, **values)
    except Refuted:
        stops = True
    group = torch.distributed
    if not group.is_available() or not group.is_initialized() or group.get_world_size() == 1:
        return stops
    decision = torch.tensor([int(stops)], device="cuda" if group.get_backend() == "nccl" else "cpu")
    group.broadcast(decision, 0)
    return bool(decision.item())
