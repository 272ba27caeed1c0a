"""F-PD-DOC-DRIFT-001: the pull request's text describes the merged configuration. (It does not.)"""

import torch

from falsifiers.param_decomp.subject import Decomposition
from harness import Trial


def falsify(trial: Trial[Decomposition]) -> None:
    """Measure each value from the trainer's behaviour, and divide it by the stated one."""
    with trial.subject_fault():
        rows, sequence = trial.subject.batch(0).shape
        powers = [float(trial.subject.p(step)) for step in (0, 1)]
        nothing = torch.zeros(1, 1, 1, dtype=torch.float64)
        plain, _ = trial.subject.frequencies({next(iter(trial.subject.sites)): nothing}, 0)
        sites = [component.shape[1] for name, component in trial.subject.components().items() if name.endswith(".V")]
    parameters = trial.parameters
    seen = {
        "batch": rows,
        "sequence": sequence,
        # p falls linearly, so its change in one step gives the number of steps.
        "steps": (parameters["stated_first_p"] - parameters["stated_last_p"]) / (powers[0] - powers[1]),
        "eps": float(plain) ** (1 / powers[0]),
        "first_p": powers[0],
        "sites": len(sites),
        "components": max(sites),
    }
    trial.measure(**{f"{name}_ratio": value / parameters[f"stated_{name}"] for name, value in seen.items()})
    trial.resolve(device="cpu")  # tensors without data have no device; what ran is Python
