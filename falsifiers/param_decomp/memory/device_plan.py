"""F-PD-JAX-B200-001: compiled for 64 B200, the 27-site step needs what the source's probe says."""

from __future__ import annotations

from falsifiers.param_decomp.memory.subject import StepPlan
from falsifiers.param_decomp.memory.workloads import workloads
from harness import Trial

__all__ = ["falsify"]

_GIB = 2**30


def falsify(trial: Trial[StepPlan]) -> None:
    """Plan each step, and compare its peak with the stated one, and both with the cap."""
    given = trial.parameters
    places = given["workloads"]
    plans = []
    for workload in workloads(given):
        with trial.subject_fault():
            plans.append(trial.subject.plan(workload))
        trial.step(len(plans), peak_gib=plans[-1].peak / _GIB)
    peaks = [one.peak / _GIB for one in plans]
    stated = [given["stated_gib"][place] for place in places]
    pairs = list(zip(peaks, stated, strict=True))
    trial.measure(
        peaks_gib=peaks,
        shares=[peak / source for peak, source in pairs],
        shared_bytes=[one.shared for one in plans],
        wrong_fits=[
            f"{peak:.1f} GiB, stated {source}"
            for peak, source in pairs
            if (peak <= given["cap_gib"]) != (source <= given["cap_gib"])
        ],
    )
    trial.resolve(device="cpu")  # the compiler runs here; no B200 does
