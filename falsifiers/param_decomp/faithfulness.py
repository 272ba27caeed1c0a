"""F-PD-FAITH-001: faithfulness is the mean square of all entries of W - VU, of all sites together."""

from dataclasses import replace
from typing import Final

import torch

from falsifiers.param_decomp.oracle import terms
from falsifiers.param_decomp.subject import Trainer
from falsifiers.param_decomp.watching import drawn_steps, measure_steps, watched_step
from harness import Trial
from harness.authoring.shadow_step import difference, differences, worst

_PUBLISHED: Final = {"dtype": "float32", "compute_dtype": "bfloat16"}
"""Of the components and of the target, as in the published runs."""


def falsify(trial: Trial[Trainer]) -> None:
    """Train on faithfulness alone, with sites of three sizes; other terms must contribute no gradient."""
    pairs = measure_steps(trial, trial.subject, drawn_steps(trial))
    numels = {weight.numel() for name, weight in pairs[0][0].before.target.items() if name in trial.subject.sites}
    values = [expected.terms["faithfulness"] for _, expected in pairs]
    trial.measure(site_sizes=len(numels), first_value=values[0], last_value=values[-1])
    trial.measure(mixed_precision_errors=_in_mixed_precision(trial))


def _in_mixed_precision(trial: Trial[Trainer]) -> dict[str, float]:
    """The errors of value and gradients where W is VU rounded to the dtype of the target, so that W - VU is small."""
    with trial.subject_fault():
        subject = type(trial.subject)(replace(trial.setting, parameters={**trial.parameters, **_PUBLISHED}))
        weights, live = subject.target_weights(), subject.components()
        with torch.no_grad():
            for name in subject.sites:
                weights[name].copy_(live[f"{name}.V"] @ live[f"{name}.U"])
    watched = watched_step(trial, subject, 0)
    components = {name: tensor.clone().requires_grad_() for name, tensor in watched.before.components.items()}
    value = terms.faithfulness(watched.before.target, components)
    gradients = torch.autograd.grad(trial.parameters["faithfulness"] * value, list(components.values()))
    applied = {name: watched.gradients[name] for name in components}
    result = differences("gradient", applied, dict(zip(components, gradients, strict=True)))
    result.append(difference("term", watched.reported.get("faithfulness", 0.0), float(value.detach())))
    largest = worst(result)
    return {name: difference.ratio for name, difference in largest.items()}
