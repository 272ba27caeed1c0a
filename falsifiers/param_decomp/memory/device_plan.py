"""F-PD-JAX-B200-001 and F-PD-JAX-B200-STATED-001: the memory of the 27-site step, compiled for 64 B200."""

from falsifiers.param_decomp.memory.subject import StepPlan
from falsifiers.param_decomp.memory.workloads import workloads
from harness import Trial

_GIB = 2**30


def falsify(trial: Trial[StepPlan]) -> None:
    """Plan each step, and compare its peak with the stated peak and with the cap.

    The parameters `workloads` and `compared` are indices of workloads: the first are planned, and the second have a
    stated peak. `stated_fits` has the stated verdict of each.
    """
    parameters = trial.parameters
    places = parameters["workloads"]
    plans = []
    for workload in workloads(parameters):
        with trial.subject_fault():
            plans.append(trial.subject.plan(workload))
        trial.step(len(plans), peak_gib=plans[-1].peak / _GIB)
    peaks = [plan.peak / _GIB for plan in plans]
    by_place = dict(zip(places, peaks, strict=True))
    trial.measure(
        peaks_gib=peaks,
        shares=[by_place[place] / parameters["stated_gib"][place] for place in parameters["compared"]],
        shared_bytes=[plan.shared for plan in plans],
        wrong_fits=[
            f"place {place}: {peak:.1f} GiB"
            for place, peak in by_place.items()
            if (peak <= parameters["cap_gib"]) != parameters["stated_fits"][place]
        ],
    )
    trial.resolve(device="cpu")  # the compiler runs on this machine; there is no B200
