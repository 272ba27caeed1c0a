"""F-PD-FAITH-001: faithfulness is the mean square of all entries of W - VU, of all sites together."""

from falsifiers.param_decomp.subject import Trainer
from falsifiers.param_decomp.watching import drawn_steps, measure_steps
from harness import Trial


def falsify(trial: Trial[Trainer]) -> None:
    """Train on faithfulness alone, with sites of three sizes; other terms must contribute no gradient."""
    pairs = measure_steps(trial, trial.subject, drawn_steps(trial))
    numels = {weight.numel() for name, weight in pairs[0][0].before.target.items() if name in trial.subject.sites}
    values = [expected.terms["faithfulness"] for _, expected in pairs]
    trial.measure(site_sizes=len(numels), first_value=values[0], last_value=values[-1])
