"""F-PD-MEMPROBE-FIT-001: a step runs under a cap if and only if the prediction says that it fits."""

from falsifiers.param_decomp.memory.measuring import runs_under
from falsifiers.param_decomp.memory.subject import StepProbe
from falsifiers.param_decomp.memory.workloads import workloads
from harness import Trial


def falsify(trial: Trial[StepProbe]) -> None:
    """Ask for verdicts at caps on both sides of the needed memory, and run steps under these caps."""
    cases, wrong, decided = [], [], 0
    for workload in workloads(trial.parameters):
        with trial.subject_fault():
            needed = trial.subject.reserved(workload)
        for share in trial.parameters["cap_shares"]:
            capacity = int(needed * share)
            with trial.subject_fault():
                verdict = trial.subject.fits(workload, capacity)
            ran = runs_under(trial, workload, capacity)
            case = f"{workload}, {share} of {needed} bytes: {verdict}, {'ran' if ran else 'did not run'}"
            cases.append(case)
            decided += verdict != "unknown"
            if verdict == ("does not fit" if ran else "fits"):
                wrong.append(case)
    trial.measure(cases=cases, wrong=wrong, decided=decided)
    trial.resolve(device=trial.device.partition(":")[0])
