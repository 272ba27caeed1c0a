"""F-PD-LR-4TH-001: learning rates follow the fourth root of the batch."""

from dataclasses import replace
from statistics import median

from falsifiers.param_decomp.subject import Trainer
from falsifiers.param_decomp.watching import executed_rates, resolve, watched_step
from harness import Trial
from harness.authoring.shadow_step import difference


def falsify(trial: Trial[Trainer]) -> None:
    """Make the first step with each batch size, and compute the learning rates from the movement of the weights."""
    parameters = trial.parameters
    by_name: dict[str, list[float]] = {"component_rates": [], "importance_rates": []}
    formula, published = [], []
    for place, batch in enumerate(parameters["batches"]):
        setting = replace(trial.setting, parameters={**parameters, "batch": batch})
        with trial.subject_fault():
            subject = type(trial.subject)(setting)
        watched = watched_step(trial, subject, 0, batch)
        rates = executed_rates(watched)
        trial.step(place, **watched.reported)
        for kind, names in (("component", watched.before.components), ("importance", watched.before.importance)):
            rate = median(rates[name] for name in names)
            by_name[f"{kind}_rates"].append(rate)
            right = parameters[f"{kind}_rate"] * (batch / parameters["reference_batch"]) ** 0.25
            formula += [difference(name, rates[name], right).ratio for name in names]
            published.append(difference(kind, rate, parameters[f"published_{kind}_rates"][place]).ratio)
    trial.measure(**by_name, formula_errors=formula, published_errors=published)
    resolve(trial, trial.subject)
