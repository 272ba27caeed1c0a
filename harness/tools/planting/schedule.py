"""Decides which claim tries which defect next.

Every prefix of the order has the same share of each operator in each file. So the share of killed defects in a prefix
is an unbiased estimate for all defects. The claim with the most expected kills per second tries a defect first,
estimated from the results of other defects in the same file. The first kill decides the fate.
"""

from __future__ import annotations

import random
import threading
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from harness.tools.planting.defects import Defect
from harness.tools.planting.results import Attempt, DefectFate, Planted

__all__ = ["Schedule", "stratified"]


def stratified(defects: Iterable[Defect], seed: int) -> list[Defect]:
    """The defects in an order whose first N are a representative sample, for every N."""
    strata: dict[tuple[str, str], list[Defect]] = defaultdict(list)
    for defect in sorted(defects, key=lambda defect: (defect.file, defect.edit.start, defect.id)):
        strata[defect.file, defect.operator].append(defect)
    chance = random.Random(seed)  # noqa: S311 (an order, no secret)
    places: list[tuple[float, Defect]] = []
    for _, stratum in sorted(strata.items()):
        chance.shuffle(stratum)
        places += [((place + chance.random()) / len(stratum), defect) for place, defect in enumerate(stratum)]
    return [defect for _, defect in sorted(places, key=lambda place: place[0])]


class Schedule:
    """Assigns the trials of a campaign. Thread-safe."""

    def __init__(self, chosen: Sequence[Planted], seconds: Mapping[str, float]) -> None:
        """Args:
        chosen: in the order in which they are tried.
        seconds: how long a trial of each claim takes without a defect.
        """
        self._chosen = {planted.defect.id: planted for planted in chosen}
        self._left = {planted.defect.id: set(planted.claims) for planted in chosen}
        self._running: Counter[str] = Counter()
        self._begun: set[str] = set()
        self._known = {name for name, left in self._left.items() if not left}
        self._attempts: dict[str, list[Attempt]] = defaultdict(list)
        self._seconds = {claim: [first] for claim, first in seconds.items()}
        self._kills: Counter[tuple[str, str]] = Counter()
        self._trials: Counter[tuple[str, str]] = Counter()
        self._turn = threading.Lock()

    def next(self, claims: Collection[str], *, only_begun: bool = False) -> tuple[Planted, str] | None:
        """The next trial of one of these claims; None if none remains.

        Args:
            only_begun: start no new defect, so that the remaining time suffices for the started ones.
        """
        with self._turn:
            open_ones = [
                name
                for name, left in self._left.items()
                if not left.isdisjoint(claims) and (name in self._begun or not only_begun)
            ]
            if not open_ones:
                return None
            # Two claims try one defect concurrently only if every defect is being tried.
            name = min(open_ones, key=self._running.__getitem__)
            claim = max(
                sorted(self._left[name].intersection(claims)), key=lambda candidate: self._promise(candidate, name)
            )
            self._left[name].discard(claim)
            self._running[name] += 1
            self._begun.add(name)
            return self._chosen[name], claim

    def add(self, defect: Defect, attempt: Attempt | None, claim: str) -> bool:
        """Add the attempt of a trial; None if it was cut short. Returns whether it decides the defect's fate."""
        with self._turn:
            self._running[defect.id] -= 1
            return self._add(defect, attempt, claim)

    def remember(self, defect: Defect, attempt: Attempt) -> None:
        """Add the attempt of an earlier campaign."""
        with self._turn:
            self._left[defect.id].discard(attempt.claim)
            self._begun.add(defect.id)
            self._add(defect, attempt, attempt.claim)

    def attempts(self, defect: Defect) -> tuple[Attempt, ...]:
        """The attempts on a defect."""
        return tuple(self._attempts[defect.id])

    @property
    def left(self) -> int:
        """The number of defects without a known fate."""
        return len(self._chosen) - len(self._known)

    def _add(self, defect: Defect, attempt: Attempt | None, claim: str) -> bool:
        if attempt is None:
            return False
        self._attempts[defect.id].append(attempt)
        if attempt.settles:
            self._left[defect.id].clear()
        if attempt.fate is not DefectFate.NOT_STARTED:
            self._seconds[claim].append(attempt.seconds)
            self._trials[claim, defect.file] += 1
            self._kills[claim, defect.file] += attempt.fate is DefectFate.KILLED
        over = attempt.settles or not (self._left[defect.id] or self._running[defect.id])
        if not over or defect.id in self._known:
            return False
        self._known.add(defect.id)
        return True

    def _promise(self, claim: str, name: str) -> float:
        """The expected kills per second."""
        of = claim, self._chosen[name].defect.file
        seconds = sum(self._seconds[claim]) / len(self._seconds[claim])
        return (self._kills[of] + 1) / (self._trials[of] + 2) / max(seconds, 0.1)
