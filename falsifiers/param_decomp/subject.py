"""What the falsifiers of this family need from a subject.

A subject is a trainer that makes single steps. Falsifiers hook the modules that a step calls: sites and target are
modules, and a forward is a call of the target. Weights, gradients and slots are live tensors.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor
from torch.nn import Module


@dataclass(frozen=True)
class Masking:
    """The second argument of a masked site.

    Attributes:
        mask: [rows, sequence, C], multiplies the components.
        delta: [rows, sequence], multiplies the residual W - VU.
        route: bool [rows, sequence]; where it is False, the site computes `x @ W`. None routes everywhere.
    """

    mask: Tensor
    delta: Tensor
    route: Tensor | None = None


class Trainer(Protocol):
    """A decomposition of a target's matrices and a way to train it; built as `Subject(setting)`.

    Building a subject is cheap. In a process group, the batch's rows are split over ranks, in their order.
    """

    target: Module
    """The frozen model with its sites. Each forward of a step, clean or masked, is one call of it."""
    sites: Mapping[str, Module]
    """The sites by name, such as `layers.18.mlp.gate_proj`, in their fixed order; live modules of the target.

    A site is called with x [rows, sequence, d_in] alone, or with x and a `Masking`.
    """

    def step(self, step: int) -> Mapping[str, float]:
        """Make the training step of that number, counted from 0; return the value of each term and their `total`.

        The terms are faithfulness, minimality, frequency, stochastic and adversarial, each before its coefficient.
        """
        ...

    batch: Callable[[int], Tensor]
    """Returns this rank's token ids [rows, sequence] of a step. A falsifier may replace it."""

    def target_weights(self) -> Mapping[str, Tensor]:
        """The frozen weights by name; each matrix is [d_in, d_out], the embedding [vocabulary, hidden]."""
        ...

    def components(self) -> Mapping[str, Tensor]:
        """`SITE.V` [d_in, C] and `SITE.U` [C, d_out]; after a step, their `grad` is what the optimizer applied."""
        ...

    def importance_weights(self) -> Mapping[str, Tensor]:
        """The weights by name of the model that predicts causal importances; their `grad` as above."""
        ...

    def sources(self) -> Mapping[str, Tensor]:
        """The persistent adversarial source [1, sequence, C + 1] of each site."""
        ...

    def slots(self) -> Mapping[str, Mapping[str, Tensor]]:
        """By name of a component, an importance weight or `SITE.source`, Adam's `exp_avg`, `exp_avg_sq` and `step`.

        Empty for tensors that were never updated.
        """
        ...


class Measures(Protocol):
    """The parts of a step that a falsifier calls directly, on its own inputs."""

    def divergence(self, masked: Tensor, clean: Tensor) -> Tensor:
        """The reconstruction loss of logits [rows, sequence, vocabulary]: a scalar."""
        ...

    def gates(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """The lower and the upper leaky gate of importance logits."""
        ...

    def masking(self, lower: Tensor, source: Tensor, route: Tensor | None = None) -> Masking:
        """The masking for importances [rows, sequence, C] and a source [rows, sequence, C + 1]."""
        ...

    def frequencies(self, upper: Mapping[str, Tensor], step: int) -> tuple[Tensor, Tensor]:
        """Importance minimality and its frequency term, for the importances [rows, sequence, C] of each site."""
        ...

    def p(self, step: int) -> float:
        """The power of importance minimality."""
        ...

    def component_rate(self, step: int) -> float:
        """The components' learning rate."""
        ...

    def importance_rate(self, step: int) -> float:
        """The importance weights' learning rate."""
        ...


class Decomposition(Trainer, Measures, Protocol):
    """A trainer with all of these methods."""


@dataclass(frozen=True)
class CompiledStep:
    """Intermediate results of a step: once it is compiled, it has no modules to hook.

    A falsifier need not trust them: other masks give other gradients, and other gradients move the weights differently.

    Attributes:
        terms: the value of each term, and their `total`.
        gradients: by name of a component or importance weight, what the optimizer applied.
        masks: for each stochastic forward in order, by masked site: mask, delta and route, as in `Masking`.
    """

    terms: Mapping[str, float]
    gradients: Mapping[str, Any]
    masks: Sequence[Mapping[str, tuple[Any, Any, Any]]]


class CompiledTrainer(Protocol):
    """A decomposition whose step is one compiled function; built as `Subject(setting)`.

    It is divided over as many devices as the parameter `devices` says. Arrays are live `jax.Array`s in the shapes of
    `Trainer`; matrices of the importance model are [d_out, d_in].
    """

    def step(self, step: int) -> CompiledStep:
        """Make the training step of that number, counted from 0."""
        ...

    def batch(self, step: int) -> Any:
        """The token ids [rows, sequence] of a step; the call changes nothing."""
        ...

    def target_weights(self) -> Mapping[str, Any]:
        """See `Trainer`, and so for all below."""
        ...

    def components(self) -> Mapping[str, Any]: ...

    def importance_weights(self) -> Mapping[str, Any]: ...

    def sources(self) -> Mapping[str, Any]: ...

    def slots(self) -> Mapping[str, Mapping[str, Any]]: ...
