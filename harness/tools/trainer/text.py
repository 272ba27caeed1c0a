"""What a trainer's file matches, as lines for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from harness.base.shortening import cut
from harness.report.messages.number_text import counted
from harness.tools.trainer.file_check import Matches, Near
from harness.tools.trainer.output_events import EventKind

__all__ = ["lines"]

_LONGEST = 120


def lines(found: Matches) -> Iterator[str]:
    """The summary in one line, then a line for each problem and each near match."""
    yield ", ".join(_summary(found))
    for problem in found.problems:
        yield f"problem: {problem}"
    for near in found.near:
        yield from _near(near)


def _summary(found: Matches) -> Iterator[str]:
    if found.logs:
        yield counted(found.telling.steps, "step")
        told = found.telling.losses
        yield counted(len(told), "loss", "losses") + (f" ({told[0]:g} to {told[-1]:g})" if told else "")
        for kind, count in sorted(found.events.items()):
            if kind is not EventKind.STEP:
                yield counted(count, kind.value.replace("_", " "), f"{kind.value.replace('_', ' ')} events")
    else:
        yield "no log"
    if found.telling.ran:
        yield "it says that it ran on " + ", ".join(f"{name} {text}" for name, text in found.telling.ran.items())
    if found.checkpoint_files:
        yield f"{len(found.checkpoints)} of {counted(found.checkpoint_files, 'checkpoint')}"
    if found.export_tensors is not None:
        yield f"export with {counted(found.export_tensors, 'tensor')}"
    first = f" (first: {cut(found.first_unmatched, _LONGEST)})" if found.unmatched else ""
    yield counted(found.unmatched, "unmatched line") + first


def _near(near: Near) -> Iterator[str]:
    yield f"near a {near.kind.value}: {cut(near.line, _LONGEST)}"
    yield f"  matches {near.matched}"
    yield f"  and not {near.pattern[len(near.matched) :]}"
