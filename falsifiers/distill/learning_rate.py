"""F-DISTILL-LR-001: every tensor moves at the configured learning rate in every step."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from falsifiers.distill.measuring.largest import largest
from falsifiers.distill.measuring.weight_comparison import snapshot
from falsifiers.distill.oracle.shadow import Configuration
from falsifiers.distill.running.shown import observed, shown
from falsifiers.distill.running.training import StepWatch, train
from falsifiers.distill.subject import Distillation
from harness import NotObserved, Trial, propagates

_SAMPLED = 256  # elements of each tensor, evenly spaced, whose steps are computed again
_NEAR_ZERO = 10  # in units of the rate: float32 then represents a movement of one rate to 7e-7
_SMALL = 1e-3  # for such a weight, AdamW's default decay of 0.01 takes 1e-5 of a rate

Slots = Mapping[str, Mapping[str, Tensor]]


def falsify(trial: Trial[Distillation]) -> None:
    """Compute the rate from the movement of the weights: AdamW's first step is the rate times |g| / (|g| + 1e-8).

    So in the first step the largest movement of a tensor's elements equals the rate for any gradient, except for weight
    decay and rounding. Elements that start near zero have neither. In later steps, the optimizer's slots give the
    direction, and the rate is the movement along it.
    """
    watch = train(trial, _Watch).watch
    moves, configuration = watch.moves, watch.configuration
    first, exact = configuration.rate(1), watch.first_rate
    first_moves = moves[0] if moves else {}
    trial.measure(
        first_rate=exact,
        first_rate_error=abs(exact / first - 1.0),
        first_rate_errors_of_tensors=[abs(move / first - 1.0) for move in first_moves.values()],
        rates=[largest(step.values()) / configuration.rate(number) for number, step in enumerate(moves, start=1)],
    )
    limit = configuration.gradient_norm
    trial.measure(
        rate_errors=propagates(observed)(watch.rate_errors),
        gradient_norm_over_limit=propagates(largest)(watch.gradient_norms) / limit if limit else 0.0,
    )


class _Watch(StepWatch):
    """Checks the weights and the optimizer's slots after each step.

    Attributes:
        configuration: the configuration that the parameters state.
        first_rate: in the first step, the largest movement of an element that starts near zero; NaN before that step.
        moves: for each step, the largest movement of an element, by tensor.
        rate_errors: for each step, the largest relative error of a tensor's rate.
        gradient_norms: for each step, the Euclidean norm of the gradients that the optimizer got.
    """

    def __init__(self, trial: Trial[Distillation]) -> None:
        super().__init__(trial)
        self.configuration = Configuration.of(trial.parameters)
        self._before = snapshot(trial.subject.student_weights())
        self._means: dict[str, Tensor] = {}
        self.first_rate = math.nan
        self.moves: list[dict[str, float]] = []
        self.rate_errors: list[float] = []
        self.gradient_norms: list[float] = []

    def __call__(self, step: int, **values: float) -> None:
        super().__call__(step, **values)
        weights, slots = self._trial.subject.student_weights(), shown(self._trial.subject, "optimizer_state")
        with self._trial.falsifier_fault():
            before, self._before = self._before, snapshot(weights)
            if not self.moves:
                self.first_rate = _first_rate(before, self._before, self.configuration.rate(1))
            self.moves.append(_largest(before, self._before))
            self.rate_errors.append(self._rate_error(before, slots))
            self.gradient_norms.append(self._gradient_norm(slots))

    @propagates
    def _rate_error(self, before: Mapping[str, Tensor], slots: Slots) -> float:
        """The largest relative error of a tensor's rate; tensors without slots are skipped."""
        expected = self.configuration.rate(self.steps)
        rates = [
            self._rate(slots[name], weight, self._before[name]) if name in slots else 0.0
            for name, weight in before.items()
        ]
        return largest(abs(rate / expected - 1.0) for rate in rates)

    def _rate(self, slots: Mapping[str, Tensor], before: Tensor, after: Tensor) -> float:
        """The multiple of AdamW's direction that the elements moved.

        Weight decay moves them in proportion to their values, so both are fitted by least squares. The falsifier counts
        the steps itself: a new optimizer would begin with new slots and a new count.
        """
        configuration = self.configuration
        mean, square, before, after = map(_spread, (slots["exp_avg"], slots["exp_avg_sq"], before, after))
        mean, square = mean / (1 - configuration.beta1**self.steps), square / (1 - configuration.beta2**self.steps)
        direction = mean / (square.sqrt() + configuration.epsilon)
        directions, moved = torch.stack([direction, before], dim=1), (before - after).unsqueeze(1)
        if not (directions.isfinite().all() and moved.isfinite().all()):
            return math.nan
        return float(torch.linalg.lstsq(directions, moved, driver="gelsd").solution[0])

    @propagates
    def _gradient_norm(self, slots: Slots) -> float:
        """The norm of the gradients after clipping, from the change of the first moment."""
        share = 1 - self.configuration.beta1
        means = {name: of["exp_avg"].detach().clone() for name, of in slots.items()}
        added = [
            (mean - (1 - share) * self._means[name] if name in self._means else mean) for name, mean in means.items()
        ]
        self._means = means
        return sum(float((tensor.double() / share).square().sum()) for tensor in added) ** 0.5


@propagates
def _first_rate(before: Mapping[str, Tensor], after: Mapping[str, Tensor], rate: float) -> float:
    """The largest movement of an element that starts near zero.

    Raises:
        NotObserved: no element starts near zero.
    """
    near = []
    for name, weight in before.items():
        chosen = weight.abs() <= min(_NEAR_ZERO * rate, _SMALL)
        if chosen.any():
            near.append(float((after[name].double() - weight.double())[chosen].abs().max()))
    if not near:
        raise NotObserved("no element begins near zero, where rounding and weight decay take little of its movement")
    return largest(near)


def _spread(tensor: Tensor) -> Tensor:
    """Up to `_SAMPLED` evenly spaced elements of a tensor, on the CPU in float64."""
    flat = tensor.detach().flatten()
    chosen = torch.linspace(0, flat.numel() - 1, min(_SAMPLED, flat.numel()), dtype=torch.float64).long()
    return flat[chosen.to(flat.device)].to("cpu", torch.float64)


def _largest(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> dict[str, float]:
    """For each tensor, the largest movement of one of its elements, in float64."""
    return {name: float((after[name].double() - before[name].double()).abs().max()) for name in before}
