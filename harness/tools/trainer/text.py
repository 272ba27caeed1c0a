"""What a trainer's file matches, as lines for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from harness.base.shortening import cut
from harness.report.messages.number_text import counted
from harness.tools.trainer.file_check import Matches, Near
from harness.tools.trainer.output_events import EventKind

__all__ = ["lines"]

_LONGEST = 120


def lines(matches: Matches) -> Iterator[str]:
    """The summary in one line, then a line for each problem and each near match."""
    yield ", ".join(_summary(matches))
    for problem in matches.problems:
        yield f"problem: {problem}"
    for near in matches.near:
        yield from _near(near)


def _summary(matches: Matches) -> Iterator[str]:
    if matches.logs:
        yield counted(matches.telling.steps, "step")
        losses = matches.telling.losses
        yield counted(len(losses), "loss", "losses") + (f" ({losses[0]:g} to {losses[-1]:g})" if losses else "")
        for kind, count in sorted(matches.events.items()):
            if kind is not EventKind.STEP:
                yield counted(count, kind.value.replace("_", " "), f"{kind.value.replace('_', ' ')} events")
    else:
        yield "no log"
    if matches.telling.ran:
        yield "it says that it ran on " + ", ".join(f"{name} {text}" for name, text in matches.telling.ran.items())
    if matches.checkpoint_files:
        yield f"{len(matches.checkpoints)} of {counted(matches.checkpoint_files, 'checkpoint')}"
    if matches.export_tensors is not None:
        yield f"export with {counted(matches.export_tensors, 'tensor')}"
    first = f" (first: {cut(matches.first_unmatched, _LONGEST)})" if matches.unmatched else ""
    yield counted(matches.unmatched, "unmatched line") + first


def _near(near: Near) -> Iterator[str]:
    yield f"near a {near.kind.value}: {cut(near.line, _LONGEST)}"
    yield f"  matches {near.matched}"
    yield f"  and not {near.pattern[len(near.matched) :]}"
