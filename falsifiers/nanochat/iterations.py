"""F-GB10-ITERS-001: the planned number of steps follows from parameters, tokens per parameter and batch."""

import random
from typing import Final

import torch

from falsifiers.nanochat.operations import SIZES
from falsifiers.nanochat.subject import Accounts
from harness import Trial

_DRAWN: Final = 12
"""Random ratios and batches besides the stated ones."""


def falsify(trial: Trial[Accounts]) -> None:
    """Count the parameters of the built model, and ask for the number of steps of each stated ratio."""
    parameters = trial.parameters
    shape, batch = ({name: parameters[name] for name in names} for names in (SIZES, ("rows", "accumulated")))
    with trial.subject_fault(), torch.device("meta"):
        counted = sum(parameter.numel() for parameter in trial.subject.model(shape).parameters())
    planned, from_stated, rests = [], [], []
    for ratio, stated in zip(parameters["tokens_per_parameter"], parameters["stated_iterations"], strict=True):
        with trial.subject_fault():
            steps = trial.subject.iterations(shape, ratio, batch)
        right = ratio * counted / (batch["rows"] * shape["sequence"] * batch["accumulated"])
        planned.append(steps)
        from_stated.append(abs(steps / stated - 1))
        rests.append(right - steps)
    chance = random.Random(trial.seed)  # noqa: S311 - ratios, and no secret
    for _ in range(_DRAWN):
        ratio, other = chance.uniform(1.0, 40.0), {**batch, "rows": chance.randint(1, 64)}
        with trial.subject_fault():
            steps = trial.subject.iterations(shape, ratio, other)
        rests.append(ratio * counted / (other["rows"] * shape["sequence"] * other["accumulated"]) - steps)
    trial.measure(parameters=counted, planned=planned, from_stated=from_stated, rest_of_step=rests)
    trial.resolve(device="cpu")  # tensors without data have no device; what ran is Python
