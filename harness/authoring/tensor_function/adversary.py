"""Runs a function of tensors, compares its results with the reference, and shrinks the case of each violation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Final

from torch import Tensor

from harness.authoring.tensor_function.against_truth import differences
from harness.authoring.tensor_function.call import Answer, Call, template
from harness.authoring.tensor_function.drawing import Case, Draw, Drawn, drawn, elements
from harness.authoring.tensor_function.function import TensorFunction
from harness.authoring.tensor_function.placed_memory import digest
from harness.authoring.tensor_function.tolerance import Truth, UnfitReference, truth

__all__ = ["Adversary", "Check", "DeviceLost", "Findings", "Refusal"]

_MOST_TEXTS: Final = 3
"""After so many violations, a relation is not tried any more. Also the most refusals that are kept."""
_ATTEMPTS: Final = 24
"""Most smaller cases to try for a violation."""
_MOST_TRUTHS: Final = 400
_WHOLE: Final = 8
"""A case of multiples of 16 may have so many times the elements of another case."""

Check = Callable[[Case], list[str]]
"""Tests a relation on a case. Returns a description of each error."""


class DeviceLost(Exception):
    """A call left the CUDA context in a sticky error, so no later call can run. The text names the call."""


class Refusal(Exception):
    """The function raised where it may refuse, such as for a dtype, layout or context. The text is its exception."""


@dataclass
class Findings:
    """The results of all relations.

    Attributes:
        tried: the number of tries of each relation.
        violations: by relation, the smallest case of each violation and its worst element with the bound.
        refused: by relation, what the function refuses by an exception.
        refusals: by relation, the number of refused tries.
        inapplicable: relations that do not apply to this function, with the reason.
        accepted: the dtypes that the function accepts; None before they are known.
        needs_gpu: whether a dtype was refused on the path to a GPU (`Answer.needs_gpu`).
    """

    tried: Counter[str] = field(default_factory=Counter)
    violations: dict[str, list[str]] = field(default_factory=dict)
    refused: dict[str, list[str]] = field(default_factory=dict)
    refusals: Counter[str] = field(default_factory=Counter)
    inapplicable: dict[str, str] = field(default_factory=dict)
    accepted: tuple[str, ...] | None = None
    needs_gpu: bool = False

    def add(self, relation: str, text: str) -> None:
        """Record a violation, unless it is known or there are enough."""
        violations = self.violations.setdefault(relation, [])
        if text not in violations and len(violations) < _MOST_TEXTS:
            violations.append(text)

    def refuse(self, relation: str, text: str) -> None:
        """Record a refusal, unless it is known or there are enough."""
        reasons = self.refused.setdefault(relation, [])
        if text not in reasons and len(reasons) < _MOST_TEXTS:
            reasons.append(text)


class Adversary:
    """Tests relations of one function."""

    def __init__(
        self,
        function: TensorFunction,
        *,
        device: str = "cpu",
        seed: int = 0,
        guard: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        """Args:
        device: the device of the tensors, `cpu` or `cuda:0`.
        guard: returns a context manager for each call, such as `trial.subject_fault`.
        """
        self.function, self.device, self.seed = function, device, seed
        self.findings = Findings()
        self.dtypes: tuple[str, ...] = ()
        self._guard = guard
        self._truths: dict[Any, Truth] = {}
        self._shapes: dict[Any, tuple[tuple[int, ...], ...]] = {}
        self.first = Case(seed=seed * 101 + 1)
        drawn = self.drawn(self.first)
        self.sizes, self.choices, self.default_sizes = drawn.sizes, drawn.choices, drawn.chosen_sizes
        tensors, _ = template(drawn.args, drawn.kwargs)
        self.numbers: tuple[int, ...] = tuple(drawn.numbers.get(id(tensor), -1) for tensor in tensors)
        """For each tensor argument, its position in the order of drawing; -1 if it was computed from drawn tensors."""
        self.indices = drawn.indices

    @property
    def dtype(self) -> str:
        """The first dtype that the function accepts."""
        return self.dtypes[0] if self.dtypes else self.function.dtypes[0]

    def find_dtypes(self) -> None:
        """Set `dtypes` to those with which the function does not raise on the first case."""
        accepted = []
        for dtype in self.function.dtypes:
            answer = self.run(self.call_for(replace(self.first, dtype=dtype), gradients=False))
            if answer.raised:
                self.findings.refuse("value", f"{dtype}: {answer.raised}")
                self.findings.needs_gpu |= answer.needs_gpu
            else:
                accepted.append(dtype)
        self.dtypes = self.findings.accepted = tuple(accepted)

    def guarded(self) -> AbstractContextManager[Any]:
        """Return the context manager for a call."""
        return self._guard()

    def case(self, number: int = 0, **changes: Any) -> Case:
        """Return the first case in the first accepted dtype, with its seed shifted by `number`."""
        return replace(self.first, **{"dtype": self.dtype, "seed": self.first.seed + number, **changes})

    def allows(self, name: str, size: int) -> bool:
        """Whether the example allows this size of a named dimension."""
        least, most, _ = self.sizes[name]
        return size >= max(1, least) and (most is None or size <= most)

    def whole(self, number: int = 0, **changes: Any) -> Case:
        """Return a case in the last accepted dtype whose sizes are multiples of 16, as kernels with fast loads want."""
        for growth in (1, 0):
            sizes = {name: 16 * (1 + growth * place) * self.sizes[name][2] for place, name in enumerate(self.sizes)}
            allowed = {name: size for name, size in sizes.items() if self.allows(name, size)}
            case = self.case(number, **{"dtype": self.dtypes[-1], "sizes": allowed, **changes})
            if self.elements(case) <= _WHOLE * self.function.largest:
                return case
        return self.case(number, **changes)

    def drawn(self, case: Case) -> Drawn:
        """Draw the arguments of a case, on the device."""
        return drawn(self.function.example, case, self.device)

    def elements(self, case: Case) -> int:
        """Return the total number of elements of a case."""
        return elements(self.function.example, case)

    def call_for(self, case: Case, *, gradients: bool = True, **ways: Any) -> Call:
        """Return the call of a case, with drawn upstream gradients, and gradients for all floating-point inputs.

        Args:
            ways: further fields of `Call`.
        """
        drawn = self.drawn(case)
        tensors, arguments = template(drawn.args, drawn.kwargs)
        call = Call(tuple(tensors), arguments)
        if gradients and self.function.differentiable:
            grad_inputs = tuple(index for index, tensor in enumerate(tensors) if tensor.is_floating_point())
            call = replace(call, grad_inputs=grad_inputs, upstream=self._drawn_upstream(case, call))
        return replace(call, **ways)

    def _drawn_upstream(self, case: Case, call: Call) -> tuple[Tensor, ...]:
        key = (str(case.sizes), str(case.choices))
        if key not in self._shapes:
            expected = self.truth(call, case.dtype).outputs
            self._shapes[key] = tuple(tuple(output.value.shape) for output in expected)
        draw = Draw(Case(dtype=case.dtype, seed=case.seed + 500_009), device=self.device)
        return tuple(draw.upstream(*shape) for shape in self._shapes[key])

    def run(self, call: Call) -> Answer:
        """Call the function and record its side effects as violations.

        Raises:
            DeviceLost: the call left the CUDA context in an error.
        """
        with self._guard():
            answer = self.function.caller.call(call)
        if answer.crashed:
            raise DeviceLost(f"{_call_text(call)}: {answer.crashed}")
        for relation in ("inputs_kept", "settings_kept", "no_shared_memory", "outputs_kept", "plain_tensors"):
            self.findings.tried[relation] += 1
        self._record(call, answer)
        return answer

    def _record(self, call: Call, answer: Answer) -> None:
        """Record the side effects of a call as violations."""
        for relation, text in answer.complaints:
            if relation != "no_host_wait" or not self.function.waits:
                self.findings.add(relation, f"{_call_text(call)}: {text}")

    def fresh(self, call: Call) -> Answer:
        """Call the function in a process that has not called it before."""
        with self._guard():
            answer = self.function.caller.call_fresh(call)
        self._record(call, answer)
        return answer

    def truth(self, call: Call, dtype: str, factors: str = "") -> Truth:
        """Return the expected answer, from the reference.

        Args:
            factors: the precision of the factors of products, a key of `FACTORS`; by default that of the function.
        """
        factors = factors or ("tf32" if self.function.tf32 else "float32")
        content = digest([*call.tensors, *call.upstream, *call.second])
        key = (content, str(call.arguments), call.grad_inputs, call.twice, dtype, factors)
        if key not in self._truths:
            if len(self._truths) >= _MOST_TRUTHS:
                self._truths.clear()
            self._truths[key] = truth(self.function.reference, call, dtype, factors=factors, slack=self.function.slack)
        return self._truths[key]

    def wrong(self, call: Call, dtype: str, *, refusable: bool = False, finite_only: bool = False) -> list[str]:
        """Call the function and compare with the reference. Returns a description of each error.

        Args:
            refusable: whether the function may raise.
            finite_only: compare only elements for which the reference is finite.

        Raises:
            Refusal: the function raised, and may.
        """
        expected = self.truth(call, dtype)
        answer = self.run(call)
        if refusable and answer.raised:
            raise Refusal(answer.raised)
        return differences(answer, expected, call.grad_inputs, finite_only=finite_only)

    def wrong_either_way(self, call: Call, dtype: str, *, refusable: bool = False) -> list[str]:
        """Like `wrong`, with and without gradients, because a function can take another path without them."""
        problems = self.wrong(call, dtype, refusable=refusable)
        if problems or not call.grad_inputs:
            return problems
        expected = Truth(self.truth(call, dtype).outputs, ())
        answer = self.run(replace(call, grad_inputs=(), upstream=()))
        if refusable and answer.raised:
            raise Refusal(answer.raised)
        return [f"without gradients, {difference}" for difference in differences(answer, expected, ())]

    def examine(self, relation: str, case: Case, check: Check, what: str = "") -> bool:
        """Test a relation on a case, record the result, and return whether the relation holds or is refused.

        A violating case is shrunk first.

        Args:
            what: how the function is called, for the text of a violation.
        """
        if len(self.findings.violations.get(relation, ())) >= _MOST_TEXTS:
            return True
        self.findings.tried[relation] += 1
        try:
            problems = check(case)
        except Refusal as refusal:
            self.findings.refusals[relation] += 1
            self.findings.refuse(relation, ": ".join(filter(None, [what or case.text(), str(refusal)])))
            return True
        if not problems:
            return True
        smallest, problems = self._shrunk(case, check, problems)
        suffix = f" {what}" if what else ""
        self.findings.add(relation, f"{smallest.text()}{suffix}, {_call_text(self._bare(smallest))}: {problems[0]}")
        return False

    def _bare(self, case: Case) -> Call:
        drawn = self.drawn(case)
        tensors, arguments = template(drawn.args, drawn.kwargs)
        return Call(tuple(tensors), arguments)

    def _shrunk(self, case: Case, check: Check, problems: list[str]) -> tuple[Case, list[str]]:
        """Shrink the sizes of a failing case while the check still fails."""
        attempts = 0
        for name, (least, most, step) in self.sizes.items():
            current = case.sizes.get(name, self.default_sizes[name])
            for size in _smaller(current, least, most, step):
                attempts += 1
                if attempts > _ATTEMPTS:
                    return case, problems
                try:
                    smaller_problems = check(case.with_size(name, size))
                except (Refusal, UnfitReference):
                    continue
                if smaller_problems:
                    case, problems = case.with_size(name, size), smaller_problems
                    break
        return case, problems


def _smaller(size: int, least: int, most: int | None, step: int) -> Iterator[int]:
    """Yield smaller sizes to try, smallest first."""
    tried = sorted({1, 2, 3, 5, size // 8, size // 4, size // 2, size * 3 // 4, size - 1})
    for candidate in tried:
        rounded = -(-candidate // step) * step
        if max(1, least) <= rounded < size and (most is None or rounded <= most):
            yield rounded


def _call_text(call: Call) -> str:
    """Return dtypes, shapes and layouts of the tensors of a call."""
    layouts = call.layouts or ("contiguous",) * len(call.tensors)
    texts = []
    for tensor, layout in zip(call.tensors, layouts, strict=True):
        text = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
        texts.append(text if layout == "contiguous" else f"{text} {layout}")
    return ", ".join(texts) + ("" if call.context == "plain" else f" ({call.context})")
