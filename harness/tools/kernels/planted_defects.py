"""Defects that can be planted in any function of tensors, and the relation that finds each.

They prove the claim about a function: the adversary finds them in this very function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from harness.authoring.tensor_function.drawing import Drawn

__all__ = ["DEFECTS", "Defect", "Shape", "shape_of"]

Function = Callable[..., Any]


@dataclass(frozen=True)
class Shape:
    """What matters of the arguments of a function for the defects that it can have.

    Attributes:
        floating: how many floating tensors there are.
        strided: whether the first of them has a dimension.
        scalars: how many scalars are drawn among other values.
    """

    floating: int
    strided: bool
    scalars: int


@dataclass(frozen=True)
class Defect:
    """One defect.

    Attributes:
        plant: makes a function with the defect.
        relation: the one that finds it.
        text: what is wrong.
        calls: the relations that are tried, where the own one is only watched in the calls of others.
        fits: whether a function with such arguments can have it.
        needs: the option without which it is none: `differentiable` or `deterministic`; empty if there is none.
        needs_gpu: whether only a GPU shows it.
    """

    plant: Callable[[Function], Function]
    relation: str
    text: str
    calls: tuple[str, ...] = ()
    fits: Callable[[Shape], bool] = lambda shape: True
    needs: str = ""
    needs_gpu: bool = False


def shape_of(drawn: Drawn) -> Shape:
    """What matters of drawn arguments.

    Raises:
        ValueError: there is no tensor among them.
    """
    values = [*drawn.args, *drawn.kwargs.values()]
    if not any(isinstance(value, Tensor) for value in values):
        raise ValueError("the example has no tensor among its arguments")
    floating = _floating(values)
    scalars = sum(len(choices) > 1 for choices in drawn.choices.values())
    return Shape(len(floating), bool(floating and floating[0].dim()), scalars)


def _floating(values: Any) -> list[Tensor]:
    return [value for value in values if isinstance(value, Tensor) and value.is_floating_point()]


def _mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """What a function returned, with the first floating tensor changed."""
    if isinstance(value, Tensor):
        return change(value) if value.is_floating_point() else value
    if isinstance(value, tuple | list) and value:
        return type(value)((_mapped(value[0], change), *value[1:]))
    return value


def _needs_gradient(args: Any, kwargs: Any) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in _floating([*args, *kwargs.values()]))


def _key(args: Any, kwargs: Any, of: Callable[[Tensor], Any]) -> Any:
    return tuple(of(value) if isinstance(value, Tensor) else repr(value) for value in (*args, *kwargs.values()))


def _remembering(function: Function, of: Callable[[Tensor], Any]) -> Function:
    kept: dict[Any, Any] = {}

    def planted(*args: Any, **kwargs: Any) -> Any:
        if _needs_gradient(args, kwargs):
            return function(*args, **kwargs)
        key = _key(args, kwargs, of)
        if key not in kept:
            kept[key] = function(*args, **kwargs)
        return _mapped(kept[key], Tensor.clone)

    return planted


def _by_address(function: Function) -> Function:
    return _remembering(function, lambda tensor: (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype))


def _by_shape(function: Function) -> Function:
    return _remembering(function, lambda tensor: (tensor.shape, tensor.dtype))


def _buffer(function: Function) -> Function:
    kept: dict[Any, Tensor] = {}

    def planted(*args: Any, **kwargs: Any) -> Any:
        outputs = function(*args, **kwargs)
        if _needs_gradient(args, kwargs):
            return outputs
        return _mapped(
            outputs, lambda output: kept.setdefault((output.shape, output.dtype), output.clone()).copy_(output)
        )

    return planted


def _output(change: Callable[[Tensor], Tensor]) -> Callable[[Function], Function]:
    return lambda function: lambda *args, **kwargs: _mapped(function(*args, **kwargs), change)


def _last_element(output: Tensor) -> Tensor:
    wrong = torch.ones_like(output)
    if wrong.numel():
        wrong.view(-1)[-1] = 1.5
    return output * wrong + (wrong - 1.0)


def _input_overwritten(function: Function) -> Function:
    def planted(*args: Any, **kwargs: Any) -> Any:
        outputs = function(*args, **kwargs)
        for tensor in _floating([*args, *kwargs.values()])[:1]:
            tensor.data.mul_(0.5)
        return outputs

    return planted


def _dense(tensor: Tensor) -> Tensor:
    """The memory from the first element on, as if the tensor were contiguous."""
    held = tensor.untyped_storage().nbytes() // tensor.element_size() - tensor.storage_offset()
    size = min(tensor.numel(), held)
    flat = tensor.as_strided((size,), (1,), int(tensor.storage_offset()))
    return torch.cat([flat, flat.new_zeros(tensor.numel() - size)]).view(tensor.shape)


def _first_floating(change: Callable[[Tensor], Tensor], which: int = 0) -> Callable[[Function], Function]:
    """A function whose first or last floating tensor is changed before the call."""

    def plant(function: Function) -> Function:
        def planted(*args: Any, **kwargs: Any) -> Any:
            floating = _floating([*args, *kwargs.values()])
            chosen = floating[which] if floating else None

            def changed(value: Any) -> Any:
                return change(chosen) if chosen is not None and value is chosen else value

            return function(*map(changed, args), **{name: changed(value) for name, value in kwargs.items()})

        return planted

    return plant


def _scalars_of_first_call(function: Function) -> Function:
    first: list[Any] = []

    def planted(*args: Any, **kwargs: Any) -> Any:
        values = [*args, *kwargs.values()]
        if not first:
            first.extend(values)
        chosen = [new if isinstance(new, Tensor) else old for new, old in zip(values, first, strict=True)]
        return function(*chosen[: len(args)], **dict(zip(kwargs, chosen[len(args) :], strict=True)))

    return planted


def _drawing(function: Function) -> Function:
    def planted(*args: Any, **kwargs: Any) -> Any:
        torch.rand(1)
        return function(*args, **kwargs)

    return planted


def _alternating(function: Function) -> Function:
    calls = [0]

    def planted(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        return _mapped(
            function(*args, **kwargs), lambda output: output * (1.0 + torch.finfo(output.dtype).eps * (calls[0] % 2))
        )

    return planted


def _on_default_stream(function: Function) -> Function:
    def planted(*args: Any, **kwargs: Any) -> Any:
        with torch.cuda.stream(torch.cuda.default_stream()):
            return function(*args, **kwargs)

    return planted


_DIFFERENTIABLE: Final = "differentiable"
DEFECTS: Final[Mapping[str, Defect]] = {
    "scaled": Defect(_output(lambda output: output * 1.1), "value", "the output is a tenth too large"),
    "last-element-wrong": Defect(_output(_last_element), "value", "the last element of the output is wrong"),
    "remembered-by-address": Defect(_by_address, "refilled", "results are remembered by the addresses of the inputs"),
    "remembered-by-shape": Defect(_by_shape, "refilled", "results are remembered by the shapes of the inputs"),
    "static-buffer": Defect(
        _buffer, "outputs_kept", "all calls of a shape return the same buffer", ("refilled", "outputs_kept")
    ),
    "input-overwritten": Defect(
        _input_overwritten, "inputs_kept", "the first input is overwritten", ("refilled", "inputs_kept")
    ),
    "strides-ignored": Defect(
        _first_floating(_dense), "layouts", "the first input is read as if it were contiguous",
        fits=lambda shape: shape.strided,
    ),
    "gradient-dropped": Defect(
        _first_floating(Tensor.detach, -1), "gradient", "the last floating input gets no gradient",
        needs=_DIFFERENTIABLE,
    ),
    "gradient-scaled": Defect(
        _output(lambda output: output + 0.1 * (output - output.detach())),
        "gradient",
        "the gradients are a tenth too large",
        needs=_DIFFERENTIABLE,
    ),
    "nan-swallowed": Defect(
        _first_floating(torch.nan_to_num), "nan_comes_out", "NaN in the first input counts as 0",
        fits=lambda shape: shape.floating > 0,
    ),
    "scalars-of-first-call": Defect(
        _scalars_of_first_call, "value", "later calls use the scalars of the first one",
        fits=lambda shape: shape.scalars > 0,
    ),
    "random-number-drawn": Defect(
        _drawing, "settings_kept", "a number of the global generator is used up", ("refilled", "settings_kept")
    ),
    "last-bit-alternates": Defect(
        _alternating, "repeats", "equal calls differ in the last bit", needs="deterministic"
    ),
    "default-stream": Defect(
        _on_default_stream, "other_stream", "work runs on the default stream, whatever the current one is",
        needs_gpu=True,
    ),
}  # fmt: skip
"""By name."""
