"""F-PD-HEADROOM-001: if a step leaves 1 GiB of 180, the prediction cannot vouch that it fits."""

from falsifiers.param_decomp.memory.measuring import measured_peak
from falsifiers.param_decomp.memory.subject import StepProbe
from falsifiers.param_decomp.memory.workloads import workloads
from harness import Trial


def falsify(trial: Trial[StepProbe]) -> None:
    """Ask for verdicts with the source's margin, and with a large margin on both sides; compare with a real step."""
    parameters = trial.parameters
    (workload,) = workloads(parameters)
    with trial.subject_fault():
        needed = trial.subject.reserved(workload)
        tight = trial.subject.fits(workload, int(needed * parameters["cap_gib"] / parameters["needed_gib"]))
        ample = trial.subject.fits(workload, 2 * needed)
        scarce = trial.subject.fits(workload, needed // 2)
        predicted = trial.subject.peak(workload)
    trial.measure(tight=tight, ample=ample, scarce=scarce, error=abs(predicted / measured_peak(trial, workload) - 1))
    trial.resolve(device=trial.device.partition(":")[0])
