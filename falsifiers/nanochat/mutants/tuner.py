"""Tuners with one known defect each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor
from triton.runtime.errors import OutOfResources

from falsifiers.nanochat.device_subjects import Candidate, Run
from falsifiers.nanochat.reference.tuner import CheckedTuner

__all__ = ["FirstThatFits", "GivesUp", "NothingCaught", "OnlyFirstChecked", "Slowest", "Unchecked", "UnfitIsFastest"]

Right = Callable[[Tensor], bool]


class Unchecked(CheckedTuner):
    """The fastest wins, whatever it computes."""

    def choose(self, candidates: Sequence[Candidate], run: Run, right: Right) -> Candidate | None:
        """Take every result for right."""
        return super().choose(candidates, run, lambda result: True)


class OnlyFirstChecked(CheckedTuner):
    """The first result is checked, and the others are taken to be like it."""

    def choose(self, candidates: Sequence[Candidate], run: Run, right: Right) -> Candidate | None:
        """Check once."""
        checked: list[bool] = []
        return super().choose(candidates, run, lambda result: bool(checked) or checked.append(True) or right(result))


class NothingCaught(CheckedTuner):
    """A configuration that does not fit ends the tuning with an exception."""

    def choose(self, candidates: Sequence[Candidate], run: Run, right: Right) -> Candidate | None:
        """Catch nothing."""
        found = [(run(one), one) for one in candidates]
        fitting = [(seconds, index) for index, ((seconds, result), _) in enumerate(found) if right(result)]
        return found[min(fitting)[1]][1] if fitting else None


class GivesUp(CheckedTuner):
    """Tuning ends at the first configuration that does not fit."""

    def choose(self, candidates: Sequence[Candidate], run: Run, right: Right) -> Candidate | None:
        """Keep those before it."""
        kept = []
        for one in candidates:
            try:
                run(one)
            except OutOfResources:
                break
            kept.append(one)
        return super().choose(kept, run, right)


class FirstThatFits(CheckedTuner):
    """The first right configuration is taken."""

    def choose(self, candidates: Sequence[Candidate], run: Run, right: Right) -> Candidate | None:
        """Stop there."""
        return next((one for one in candidates if super(FirstThatFits, self).choose([one], run, right)), None)


class Slowest(CheckedTuner):
    """The order of times is turned around."""

    def choose(self, candidates: Sequence[Candidate], run: Run, right: Right) -> Candidate | None:
        """Negate the seconds."""

        def negated(one: Candidate) -> tuple[float, Tensor]:
            seconds, result = run(one)
            return -seconds, result

        return super().choose(candidates, negated, right)


class UnfitIsFastest(CheckedTuner):
    """A configuration that does not fit counts as one of no time, and its result is not looked at."""

    def choose(self, candidates: Sequence[Candidate], run: Run, right: Right) -> Candidate | None:
        """Give it 0 seconds."""
        for one in candidates:
            try:
                run(one)
            except OutOfResources:
                return one
        return super().choose(candidates, run, right)
