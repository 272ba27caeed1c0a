"""F-PD-MEM-SEQ-001 and F-PD-MEM-BATCH-001: the peak rises with sequence or batch, and a cap separates two of them."""

from itertools import pairwise

from falsifiers.param_decomp.memory.measuring import measured_peak, runs_under
from falsifiers.param_decomp.memory.subject import StepProbe
from falsifiers.param_decomp.memory.workloads import workloads
from harness import Trial


def falsify(trial: Trial[StepProbe]) -> None:
    """Predict and measure each workload, smallest first; run the outer two under a cap halfway between."""
    cases = workloads(trial.parameters)
    predicted, measured = [], []
    for workload in cases:
        with trial.subject_fault():
            predicted.append(trial.subject.peak(workload))
        measured.append(measured_peak(trial, workload))
    cap = (measured[0] + measured[-1]) // 2
    rises = {
        name: [later / earlier for earlier, later in pairwise(peaks)]
        for name, peaks in (("predicted", predicted), ("measured", measured))
    }
    trial.measure(
        predicted=predicted,
        measured=measured,
        predicted_rises=rises["predicted"],
        measured_rises=rises["measured"],
        ratios=[ours / theirs for ours, theirs in zip(predicted, measured, strict=True)],
        first_is_predicted_below_cap=predicted[0] < cap,
        last_is_predicted_below_cap=predicted[-1] < cap,
        first_runs=runs_under(trial, cases[0], cap + _slack(trial, cap)),
        last_runs=runs_under(trial, cases[-1], cap),
    )
    trial.resolve(device=trial.device.partition(":")[0])


def _slack(trial: Trial[StepProbe], cap: int) -> int:
    """The bytes that a CUDA allocator reserves beyond the allocated ones. A cap on a GPU limits reserved bytes."""
    return cap // 10 if trial.device.startswith("cuda") else 0
