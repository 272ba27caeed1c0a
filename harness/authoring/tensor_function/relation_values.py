"""Relations of values: outputs and gradients compared with float64, in every dtype, at every size, for special values
and invalid arguments."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Final

import torch

from harness.authoring.tensor_function.adversary import Adversary, Refusal
from harness.authoring.tensor_function.against_truth import differences
from harness.authoring.tensor_function.call import Call
from harness.authoring.tensor_function.drawing import Case
from harness.authoring.tensor_function.sizes import sizes_of
from harness.authoring.tensor_function.tolerance import Expected, Truth, UnfitReference

__all__ = [
    "arguments_checked",
    "gradient",
    "indices_checked",
    "larger",
    "nan_comes_out",
    "nan_stays_apart",
    "same_tensor_twice",
    "shapes_checked",
    "sizes",
    "special_values",
    "value",
]

_USUAL: Final = ("normal", "large", "alike")
_ODD: Final = ("ties", "equal", "zero", "spike")
_EXTREME: Final = ("denormal", "huge", "inf", "-inf")
_MIXED: Final = 6
"""Cases in which all sizes are drawn."""
_LARGER: Final = 8
"""Times the largest elements that `larger` may have."""
_OVERFLOWING: Final = 65_537
"""Ones whose sum is above the largest float16. This many elements are tried even where they are above the largest."""


def value(adversary: Adversary) -> None:
    """The outputs are right in every dtype that is accepted, for every choice."""
    adversary.find_dtypes()
    if not adversary.dtypes:
        adversary.findings.tried["value"] += 1
        adversary.findings.add("value", f"it accepts no dtype: {adversary.findings.refused['value'][0]}")
    for dtype in adversary.dtypes:
        for case in _cases(adversary, dtype):
            adversary.examine("value", case, lambda case: adversary.wrong(_plain(adversary, case), case.dtype))


def gradient(adversary: Adversary) -> None:
    """The gradients are right: of all floating tensors, of each alone, and of a drawn part of them."""
    chance = random.Random(adversary.seed)  # noqa: S311 - a choice, and no secret
    for dtype in adversary.dtypes:
        for case in _cases(adversary, dtype):
            adversary.examine("gradient", case, lambda case: adversary.wrong(adversary.call_for(case), case.dtype))
    case = adversary.case(7)
    inputs = adversary.call_for(case).grad_inputs
    parts: list[tuple[int, ...]] = [(place,) for place in inputs] if len(inputs) > 1 else []
    parts += [tuple(sorted(chance.sample(inputs, len(inputs) - 1)))] if len(inputs) > 2 else []
    for part in parts:

        def check(case: Case, part: tuple[int, ...] = part) -> list[str]:
            return adversary.wrong(adversary.call_for(case, grad_inputs=part), case.dtype)

        adversary.examine("gradient", case, check, f"gradient of tensors {list(part)} alone")


def sizes(adversary: Adversary) -> None:
    """Outputs and gradients are right at each size of each dimension; a size of 0 may be refused."""
    most, cases = adversary.function.largest, []
    pools = {}
    for name, (least, limit, step) in adversary.sizes.items():
        narrow = {other: -(-max(1, low) // by) * by for other, (low, _, by) in adversary.sizes.items() if other != name}
        pool, fitting = sizes_of(least, limit, step, adversary.function.constants), []
        for size in pool:
            tried = [adversary.case(size).with_size(name, size), adversary.case(size, sizes={**narrow, name: size})]
            fits = [case for case in tried if adversary.elements(case) <= most]
            fitting += [size] if fits else []
            cases += fits[:1]
        if missed := sorted(set(adversary.function.constants).intersection(pool).difference(fitting)):
            adversary.findings.refuse("sizes", f"not tried: {name} of {missed}, integers of the source, as too large")
        long = adversary.case(
            200, dtype="float16", values="equal", sizes={**narrow, name: -(-_OVERFLOWING // step) * step}
        )
        if "float16" in adversary.dtypes and limit is None and adversary.elements(long) <= 8 * most:
            cases.append(long)
        pools[name] = fitting
        for dtype in adversary.dtypes[1:]:  # sums in half precision go wrong where they are long
            longest = [{**narrow, name: size} for size in fitting[-1:]]
            cases += [
                adversary.case(sizes_drawn[name], dtype=dtype, values="alike", sizes=sizes_drawn)
                for sizes_drawn in longest
            ]
    chance = random.Random(adversary.seed)  # noqa: S311 - sizes, and no secret
    drawn = ({name: chance.choice(pool) for name, pool in pools.items() if pool} for _ in range(8 * _MIXED))
    mixed = (adversary.case(100 + number, sizes=sizes_drawn) for number, sizes_drawn in enumerate(drawn))
    cases += islice((case for case in mixed if adversary.elements(case) <= most), _MIXED)
    cases.append(adversary.case(200, sizes={name: pool[0] for name, pool in pools.items() if pool}))
    for case in cases:
        adversary.examine("sizes", case, lambda case: adversary.wrong_either_way(adversary.call_for(case), case.dtype))
    for name, (least, _, _) in adversary.sizes.items():
        try:
            call = adversary.call_for(adversary.case().with_size(name, 0)) if least <= 1 else None
        except (UnfitReference, RuntimeError, ValueError, IndexError):
            call = None  # the reference, or drawing, may not support empty tensors
        if call is not None:

            def check(case: Case) -> list[str]:
                return adversary.wrong(adversary.call_for(case), case.dtype, refusable=True)

            adversary.examine("sizes", adversary.case().with_size(name, 0), check)


def larger(adversary: Adversary) -> None:
    """Outputs and gradients are right with each size a few times as large, up to what the example allows."""
    for place, (name, (_, most, step)) in enumerate(adversary.sizes.items()):
        size = 5 * adversary.default_sizes[name] + step
        case = adversary.case(230 + place).with_size(name, size if most is None else min(size, most))
        if adversary.elements(case) <= _LARGER * adversary.function.largest:
            adversary.examine("larger", case, lambda case: adversary.wrong(adversary.call_for(case), case.dtype))


def special_values(adversary: Adversary) -> None:
    """Ties, equal numbers, zeros, an outlier; and denormal, huge and infinite ones that float32 can compute with."""
    for dtype in adversary.dtypes[:1] + adversary.dtypes[-1:]:
        for number, values in enumerate(_ODD):
            case = adversary.case(300 + number, dtype=dtype, values=values)
            adversary.examine(
                "special_values", case, lambda case: adversary.wrong_either_way(adversary.call_for(case), case.dtype)
            )
        for number, values in enumerate(_EXTREME):
            case = adversary.case(320 + number, dtype=dtype, values=values)
            adversary.examine("special_values", case, lambda case: _extreme(adversary, case))


def nan_comes_out(adversary: Adversary) -> None:
    """A NaN in any floating tensor comes out where it comes out of the reference."""

    def check(case: Case) -> list[str]:
        call = _plain(adversary, case)
        due, answer = adversary.truth(call, case.dtype), adversary.run(call)
        pairs = enumerate(zip(answer.outputs, due.outputs, strict=False))
        lost = [place for place, (got, expected) in pairs if _loses_nan(got.cpu(), expected.value)]
        return [f"output {place} has a number where NaN is due" for place in lost]

    _with_nan(adversary, "nan_comes_out", check)


def _loses_nan(got: torch.Tensor, due: torch.Tensor) -> bool:
    return got.shape != due.shape or bool((due.isnan() & ~got.isnan()).any())


def nan_stays_apart(adversary: Adversary) -> None:
    """A NaN in any floating tensor changes no number that it leaves in the reference."""
    _with_nan(adversary, "nan_stays_apart", lambda case: adversary.wrong(_plain(adversary, case), case.dtype))


def _with_nan(adversary: Adversary, relation: str, check: Callable[[Case], list[str]]) -> None:
    for place in _floating(_plain(adversary, adversary.case())):
        adversary.examine(relation, adversary.case(340 + place, values="nan", special=adversary.numbers[place]), check)


def indices_checked(adversary: Adversary) -> None:
    """An index outside its range, on either side, raises, or gives a NaN."""
    if not adversary.indices:
        adversary.findings.inapplicable["indices_checked"] = "no tensor of indices is drawn"
    for number in adversary.indices:

        def check(case: Case) -> list[str]:
            answer = adversary.fresh(_plain(adversary, case))
            if answer.crashed:
                return [f"its process {answer.crashed} at an index outside its range"]
            return [] if answer.raised or answer.has_nan else ["an index outside its range gives a plain result"]

        for below in (False, True):
            side = "an index below its range" if below else "an index beyond its range"
            adversary.examine("indices_checked", adversary.case(360, out_of_range=number, below=below), check, side)


def arguments_checked(adversary: Adversary) -> None:
    """What the example names as refused raises, also after a right call; of another dtype, the right answer will do."""
    refused = adversary.drawn(adversary.case(365)).refused
    if not refused:
        adversary.findings.inapplicable["arguments_checked"] = "the example names nothing that is refused"

    def check(case: Case) -> list[str]:
        usual, call = _plain(adversary, replace(case, refused=-1)), _plain(adversary, case)
        adversary.run(usual)
        if adversary.run(replace(call, context="other settings")).raised:
            return []
        if [tensor.dtype for tensor in call.tensors] == [tensor.dtype for tensor in usual.tensors]:
            return ["it answers"]
        try:
            return adversary.wrong_either_way(adversary.call_for(case), _coarsest(call), refusable=True)
        except UnfitReference:
            return ["it answers, and the reference does not"]

    for number, what in enumerate(refused):
        adversary.examine("arguments_checked", adversary.case(365, refused=number), check, what)


def shapes_checked(adversary: Adversary) -> None:
    """A tensor that is one shorter than the others ask for raises, where the reference raises.

    All indices are 0 or less: one that ends beyond a shorter tensor would raise for another reason.
    """
    whole = _plain(adversary, adversary.case(370))
    for place, tensor in enumerate(whole.tensors):
        for axis in range(tensor.dim()):

            def check(case: Case, place: int = place, axis: int = axis) -> list[str]:
                call = _plain(adversary, case)
                tensors = [
                    tensor.clamp(max=0) if number in adversary.indices else tensor
                    for tensor, number in zip(call.tensors, adversary.numbers, strict=True)
                ]
                if tensors[place].shape[axis] < 3:  # one of two can stand for both
                    return []
                tensors[place] = tensors[place].narrow(axis, 0, tensors[place].shape[axis] - 1).clone()
                call = replace(call, tensors=tuple(tensors))
                try:
                    adversary.truth(call, case.dtype)
                except UnfitReference:
                    answer = adversary.fresh(replace(call, context="other settings"))
                    return [] if answer.raised else [f"it {answer.crashed or 'answers'}, and the shapes do not fit"]
                return []

            case = adversary.case(370)
            adversary.examine("shapes_checked", case, check, f"tensor {place} shorter by one along {axis}")


def same_tensor_twice(adversary: Adversary) -> None:
    """Two arguments may be one tensor; its gradient is then the sum of both."""
    call = _plain(adversary, adversary.case())
    floating = _floating(call)
    pairs = [
        (first, second)
        for first in floating
        for second in floating
        if first < second and call.tensors[first].shape == call.tensors[second].shape
    ]
    if not pairs:
        adversary.findings.inapplicable["same_tensor_twice"] = "no two floating tensors have one shape"
    for pair in pairs:

        def check(case: Case, pair: tuple[int, int] = pair) -> list[str]:
            call = adversary.call_for(case, twice=pair)
            tensors = [call.tensors[pair[0] if place == pair[1] else place] for place in range(len(call.tensors))]
            inputs = tuple(place for place in call.grad_inputs if place != pair[1])
            return adversary.wrong(replace(call, tensors=tuple(tensors), grad_inputs=inputs), case.dtype)

        adversary.examine("same_tensor_twice", adversary.case(380), check, f"tensors {pair[0]} and {pair[1]} are one")


def _cases(adversary: Adversary, dtype: str) -> list[Case]:
    """The first case with each kind of values, and with each other choice."""
    cases = [adversary.case(number, dtype=dtype, values=values) for number, values in enumerate(_USUAL)]
    for name, values in adversary.choices.items():
        cases += [adversary.case(10 + place, dtype=dtype).with_choice(name, place) for place in range(1, len(values))]
    return cases


def _plain(adversary: Adversary, case: Case) -> Call:
    return adversary.call_for(case, gradients=False)


def _coarsest(call: Call) -> str:
    """Return the dtype of a tensor that rounds most."""
    kinds = [call.tensors[place].dtype for place in _floating(call)]
    return str(max(kinds, key=lambda kind: torch.finfo(kind).eps)).removeprefix("torch.")


def _floating(call: Call) -> list[int]:
    return [place for place, tensor in enumerate(call.tensors) if tensor.is_floating_point()]


def _extreme(adversary: Adversary, case: Case) -> list[str]:
    """Compare the outputs where the reference in float32, too, is within the bound."""
    call = _plain(adversary, case)
    try:
        truth, rough = adversary.truth(call, case.dtype), _in_float32(adversary, call, case.dtype)
    except UnfitReference:
        return []
    compared = [_demanded(output, other) for output, other in zip(truth.outputs, rough, strict=True)]
    answer = adversary.run(call)
    if answer.raised and "inf" in case.values:
        raise Refusal(answer.raised)
    demanded = Truth(tuple(compared), ())
    shown = [
        torch.where(expected.bound.isinf().to(got.device), expected.value.to(got.device, got.dtype), got)
        if got.shape == expected.value.shape
        else got
        for got, expected in zip(answer.outputs, compared, strict=False)
    ]
    return differences(replace(answer, outputs=tuple(shown)), demanded, ())


def _demanded(expected: Expected, rough: torch.Tensor) -> Expected:
    """The truth, with an infinite bound for elements that the reference cannot compute in float32."""
    if not expected.value.is_floating_point():
        return expected
    close = (rough.double() - expected.value).abs() <= expected.bound
    sure = close & expected.value.isfinite() & rough.isfinite()
    return replace(expected, bound=torch.where(sure, expected.bound, torch.inf))


def _in_float32(adversary: Adversary, call: Call, dtype: str) -> list[torch.Tensor]:
    from harness.authoring.tensor_function.call import filled
    from harness.authoring.tensor_function.hosting import tensors_of

    kind = torch.float64 if dtype == "float64" else torch.float32
    tensors = [tensor.cpu().to(kind) if tensor.is_floating_point() else tensor.cpu() for tensor in call.tensors]
    args, kwargs = filled(call.arguments, tensors)
    return tensors_of(adversary.function.reference(*args, **kwargs))
