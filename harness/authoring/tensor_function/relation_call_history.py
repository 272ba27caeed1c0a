"""Relations of state: a call does not depend on earlier calls, their memory or their number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import Final

import torch

from harness.authoring.tensor_function.adversary import Adversary
from harness.authoring.tensor_function.against_truth import differences
from harness.authoring.tensor_function.call import Call
from harness.authoring.tensor_function.drawing import Case
from harness.authoring.tensor_function.placed_memory import fits

__all__ = ["history", "no_growth", "refilled", "repeats"]

_MEMORIES: Final = ("new", "addresses", "objects")
_TIMES: Final = 40


def history(adversary: Adversary) -> None:
    """A, B, A: B differs from A in exactly one thing and is right; A is then as in a fresh process, bit by bit."""
    _history(adversary, adversary.case(400), _MEMORIES)
    last = {name: len(values) - 1 for name, values in adversary.choices.items()}
    if any(last.values()):
        _history(adversary, adversary.case(401, choices=last), ("new",))


def _history(adversary: Adversary, base: Case, memories: tuple[str, ...]) -> None:
    first = adversary.call_for(base)
    fresh = adversary.fresh(first)
    if fresh.untried:
        adversary.findings.refuse("history", f"not compared with a fresh process: {fresh.untried}")
    elif fresh.crashed or fresh.raised:
        adversary.findings.add("history", f"{base.text()} in a fresh process: {fresh.crashed or fresh.raised}")
    for memory in memories:
        for what, other in _others(adversary, base):
            way = f"{what}, {'new memory' if memory == 'new' else f'the same {memory}'}"

            def check(case: Case, other: Call = other, what: str = what, memory: str = memory) -> list[str]:
                if case != base:
                    return []  # the pair belongs together
                call_a, call_b = replace(first, memory=memory), replace(other, memory=memory)
                before = adversary.run(call_a)
                may_refuse = call_b.layouts != call_a.layouts
                problems = _prefixed(
                    f"B ({what} differs)", adversary.wrong(call_b, _dtype(call_b, base), refusable=may_refuse)
                )
                after = adversary.run(call_a)
                problems += _prefixed(
                    "A before B", differences(before, adversary.truth(call_a, base.dtype), call_a.grad_inputs)
                )
                problems += _prefixed(
                    "A after B", differences(after, adversary.truth(call_a, base.dtype), call_a.grad_inputs)
                )
                if adversary.function.deterministic and not problems:
                    for name, answer in (("A", before), ("A after B", after)):
                        if answer.digest != (before.digest if fresh.untried else fresh.digest):
                            first_one = "the A before" if fresh.untried else "A in a fresh process"
                            problems.append(f"{name} differs in bits from {first_one}")
                return problems

            adversary.examine("history", base, check, f"A, B, A ({way})")


def refilled(adversary: Adversary) -> None:
    """The same memory with other contents gives another answer: the same tensors, and new ones at their addresses."""
    for memory in ("objects", "addresses"):
        for gradients in (True, False) if adversary.function.differentiable else (False,):

            def check(case: Case, memory: str = memory, gradients: bool = gradients) -> list[str]:
                problems: list[str] = []
                for number in range(3):
                    later = replace(case, seed=case.seed + number)
                    problems += adversary.wrong(
                        adversary.call_for(later, gradients=gradients, memory=memory), case.dtype
                    )
                return problems

            cases = (
                [adversary.case(420)]
                if gradients or memory == "objects"
                else [adversary.case(420), adversary.whole(423)]
            )
            for case in cases:
                adversary.examine("refilled", case, check, f"three contents in the same {memory}")


def repeats(adversary: Adversary) -> None:
    """Equal calls give equal bits, if that is declared."""
    if not adversary.function.deterministic:
        adversary.findings.inapplicable["repeats"] = "it is declared not to be deterministic"
        return
    for dtype in adversary.dtypes:

        def check(case: Case) -> list[str]:
            call = adversary.call_for(case)
            digests = {adversary.run(call).digest for _ in range(4)}
            return [] if len(digests) == 1 else [f"4 equal calls gave {len(digests)} different answers"]

        adversary.examine("repeats", adversary.case(440, dtype=dtype), check)


def no_growth(adversary: Adversary) -> None:
    """Many calls leave no tensor and no memory behind."""

    def check(case: Case) -> list[str]:
        call = adversary.call_for(case, gradients=False)
        with adversary.guarded():
            tensors, memory = adversary.function.caller.growth(call, _TIMES)
        problems = [f"{tensors} more tensors live after {_TIMES} calls"] if tensors > _TIMES // 4 else []
        return problems + ([f"{memory} more bytes of the GPU are in use after {_TIMES} calls"] if memory > 0 else [])

    adversary.examine("no_growth", adversary.case(460), check)


def _others(adversary: Adversary, base: Case) -> Iterator[tuple[str, Call]]:
    """Calls that differ from the base in one thing, with its name."""
    first = adversary.call_for(base)
    for name, values in adversary.choices.items():
        for place in range(len(values)):
            if place != base.choices.get(name, 0):
                yield f"{name}={values[place]!r}", adversary.call_for(base.with_choice(name, place))
    if base.choices:
        return
    for name, (_, _, step) in adversary.sizes.items():
        for size in (adversary.default_sizes[name] + step, adversary.default_sizes[name] - step):
            if adversary.allows(name, size):
                yield f"{name}={size}", adversary.call_for(base.with_size(name, size))
    yield from _of_one_shape(adversary, base, first)
    for dtype in adversary.dtypes[1:]:
        yield dtype, adversary.call_for(replace(base, dtype=dtype))
    for place, tensor in enumerate(first.tensors):
        if tensor.numel() > 1 and (number := adversary.numbers[place]) >= 0:
            yield (
                f"an element of tensor {place}",
                adversary.call_for(replace(base, changed_element=(number, tensor.numel() // 3))),
            )
        if fits(tuple(tensor.shape), "transposed"):
            layouts = tuple("transposed" if index == place else "contiguous" for index in range(len(first.tensors)))
            yield f"strides of tensor {place}", replace(first, layouts=layouts)
    if first.upstream:
        yield "the upstream gradient", replace(first, upstream=tuple(-0.5 * gradient for gradient in first.upstream))
    for place in first.grad_inputs if len(first.grad_inputs) > 1 else ():
        yield f"only tensor {place} needs a gradient", replace(first, grad_inputs=(place,))
    if first.grad_inputs:
        yield "no gradient", adversary.call_for(base, gradients=False)
    yield "all contents", adversary.call_for(replace(base, seed=base.seed + 1))


def _of_one_shape(adversary: Adversary, base: Case, first: Call) -> Iterator[tuple[str, Call]]:
    """Calls with the shapes of the first, that differ in tensors computed from sizes, such as offsets of sequences."""
    sizes = adversary.default_sizes
    for longer, shorter in combinations(sizes, 2):
        changed = {
            longer: sizes[longer] + adversary.sizes[longer][2],
            shorter: sizes[shorter] - adversary.sizes[shorter][2],
        }
        if not all(adversary.allows(name, size) for name, size in changed.items()):
            continue
        call = adversary.call_for(replace(base, sizes=changed))
        pairs = list(zip(first.tensors, call.tensors, strict=True))
        if all(first.shape == other.shape for first, other in pairs) and not all(
            map(torch.equal, *zip(*pairs, strict=True))
        ):
            yield f"{longer}={changed[longer]} and {shorter}={changed[shorter]}", call


def _dtype(call: Call, base: Case) -> str:
    """The dtype whose rounding is allowed for a call."""
    for tensor in call.tensors:
        if tensor.is_floating_point():
            return str(tensor.dtype).removeprefix("torch.")
    return base.dtype


def _prefixed(what: str, problems: list[str]) -> list[str]:
    return [f"{what}: {problem}" for problem in problems]
