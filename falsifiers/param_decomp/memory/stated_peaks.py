"""F-PD-JAX-PEAKS-001: the stated peaks for two sequence lengths belong to one step. (They do not.)"""

from falsifiers.param_decomp.memory.subject import StepPlan
from harness import Trial

_GIB = 2**30


def falsify(trial: Trial[StepPlan]) -> None:
    """Subtract a step's inputs and outputs, which no compiler can change, from the stated peaks."""
    parameters = trial.parameters
    floors = []
    for sequence in parameters["sequences"]:
        with trial.subject_fault():
            arguments, results = trial.subject.kept({"sequence": sequence})
        floors.append((arguments + results) / _GIB)
    trial.measure(
        floors_gib=floors,
        temporaries_gib=[stated - floor for stated, floor in zip(parameters["stated_gib"], floors, strict=True)],
    )
    trial.resolve(device="cpu")  # shapes have no device; what ran is Python
