"""Schedules of learning rates and of p, and the scaling of rates with the batch."""

import math


def cosine(start: float, step: int, steps: int, final: float) -> float:
    """A cosine from `start` down to its share `final` at the last step, `steps - 1`."""
    progress = step / (steps - 1) if steps > 1 else 0.0
    return start * (final + (1 - final) * 0.5 * (1 + math.cos(math.pi * progress)))


def warmed_up(value: float, step: int, steps: int, share: float) -> float:
    """A linear rise from 0 to `value` over that share of the run, then constant."""
    rising = int(steps * share)
    return value * step / rising if step < rising else value


def annealed(start: float, end: float, step: int, steps: int) -> float:
    """Linear in the elapsed share of the run."""
    return start + (end - start) * step / steps


def scaled_to_batch(rate: float, batch: int, reference: int) -> float:
    """The rate for another batch than `reference` rows: it grows with the fourth root."""
    return rate * (batch / reference) ** 0.25
