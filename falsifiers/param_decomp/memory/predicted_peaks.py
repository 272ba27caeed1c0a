"""F-PD-MEMPROBE-ACC-001: the predicted peak of a step is within 10 % of the measured one."""

from falsifiers.param_decomp.memory.measuring import measured_peak
from falsifiers.param_decomp.memory.subject import StepProbe
from falsifiers.param_decomp.memory.workloads import workloads
from harness import Trial


def falsify(trial: Trial[StepProbe]) -> None:
    """Predict each workload, then run two real steps of it."""
    predicted, measured = [], []
    for workload in workloads(trial.parameters):
        with trial.subject_fault():
            predicted.append(trial.subject.peak(workload))
        measured.append(measured_peak(trial, workload))
    trial.measure(
        predicted=predicted,
        measured=measured,
        ratios=[ours / theirs for ours, theirs in zip(predicted, measured, strict=True)],
    )
    trial.resolve(device=trial.device.partition(":")[0])
