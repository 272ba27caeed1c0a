"""F-PD-LR-SCHED-001: learning rates fall along a cosine to a tenth at the last step."""

from dataclasses import replace

from falsifiers.param_decomp.configuration import configuration_of
from falsifiers.param_decomp.oracle.step import cosine
from falsifiers.param_decomp.subject import Decomposition
from falsifiers.param_decomp.watching import executed_rates, measure_steps
from harness import Trial
from harness.authoring.shadow_step import difference


def falsify(trial: Trial[Decomposition]) -> None:
    """Train a whole run, and compare the stated and the executed rate of every step with the formula."""
    config = configuration_of(trial.parameters)
    starts = {"component": config.component_rate, "importance": config.importance_rate}
    stated, executed = [], []
    with trial.subject_fault():
        by_kind = {
            "component": [float(trial.subject.component_rate(step)) for step in range(config.steps)],
            "importance": [float(trial.subject.importance_rate(step)) for step in range(config.steps)],
        }
        for steps in (1, 2, 3):
            short = type(trial.subject)(replace(trial.setting, parameters={**trial.parameters, "steps": steps}))
            pairs = ((short.component_rate, starts["component"]), (short.importance_rate, starts["importance"]))
            stated += [
                difference("", float(rate(step)), start * cosine(replace(config, steps=steps), step)).ratio
                for rate, start in pairs
                for step in range(steps)
            ]
    for kind, rates in by_kind.items():
        stated += [difference(kind, rate, starts[kind] * cosine(config, step)).ratio for step, rate in enumerate(rates)]
    pairs = measure_steps(trial, trial.subject, range(config.steps))
    for watched, _ in pairs:
        share = cosine(config, watched.before.step)
        executed += [
            difference(
                name, rate, starts["component" if name in watched.before.components else "importance"] * share
            ).ratio
            for name, rate in executed_rates(watched).items()
        ]
    trial.resolve(steps=len(pairs))
    trial.measure(
        last_shares=[rates[-1] / rates[0] for rates in by_kind.values()], stated_errors=stated, executed_errors=executed
    )
