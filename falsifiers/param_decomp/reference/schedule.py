"""How learning rates and the power of importance minimality change over a run, and with the batch."""

from __future__ import annotations

import math


def cosine(start: float, step: int, steps: int, final: float) -> float:
    """From `start` down to the share `final` of it, which the last step, `steps - 1`, has."""
    progress = step / (steps - 1) if steps > 1 else 0.0
    return start * (final + (1 - final) * 0.5 * (1 + math.cos(math.pi * progress)))


def warmed_up(value: float, step: int, steps: int, share: float) -> float:
    """From 0 up to `value` over that share of the run, and constant then."""
    rising = int(steps * share)
    return value * step / rising if step < rising else value


def annealed(start: float, end: float, step: int, steps: int) -> float:
    """Linear in the share of the run that is over."""
    return start + (end - start) * step / steps


def scaled_to_batch(rate: float, batch: int, reference: int) -> float:
    """A rate stated for a batch of `reference` rows, for another batch: it grows with the fourth root."""
    return rate * (batch / reference) ** 0.25
