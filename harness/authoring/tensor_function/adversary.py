"""Asks one function of tensors, compares its answers with the truth, and keeps the smallest case of each violation."""

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

_MOST: Final = 3
"""Violations of one relation that are kept; then it is not tried further."""
_ATTEMPTS: Final = 24
"""Smaller cases that are tried for a violation."""
_KEPT: Final = 400

Check = Callable[[Case], list[str]]
"""Tries a relation on a case; what is wrong, in words."""


class DeviceLost(Exception):
    """A call has left the GPU in an error that no later call of this process gets past. The text says which call."""


class Refusal(Exception):
    """The function refused by an exception what it may refuse: a dtype, a layout, a context. The text is its own."""


@dataclass
class Findings:
    """What came of the relations.

    Attributes:
        tried: how often each relation was tried.
        violations: for each relation, its violations: the smallest case, and the worst element against its bound.
        refused: for each relation, what the function refuses by an exception.
        refusals: how many of the tries were refused.
        inapplicable: the relations that do not concern this function, with the reason.
        accepted: the dtypes that the function accepts; None before they are known.
    """

    tried: Counter[str] = field(default_factory=Counter)
    violations: dict[str, list[str]] = field(default_factory=dict)
    refused: dict[str, list[str]] = field(default_factory=dict)
    refusals: Counter[str] = field(default_factory=Counter)
    inapplicable: dict[str, str] = field(default_factory=dict)
    accepted: tuple[str, ...] | None = None

    def add(self, relation: str, text: str) -> None:
        """Note a violation."""
        violations = self.violations.setdefault(relation, [])
        if text not in violations and len(violations) < _MOST:
            violations.append(text)

    def refuse(self, relation: str, text: str) -> None:
        """Note a refusal."""
        reasons = self.refused.setdefault(relation, [])
        if text not in reasons and len(reasons) < _MOST:
            reasons.append(text)


class Adversary:
    """Tries relations on one function."""

    def __init__(
        self,
        function: TensorFunction,
        *,
        device: str = "cpu",
        seed: int = 0,
        guard: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        """Args:
        device: `cpu` or `cuda:0`, where the tensors are.
        guard: is entered for every call, such as `trial.subject_fault`.
        """
        self.function, self.device, self.seed = function, device, seed
        self.findings = Findings()
        self.dtypes: tuple[str, ...] = ()
        self._guard = guard
        self._truths: dict[Any, Truth] = {}
        self._shapes: dict[Any, tuple[tuple[int, ...], ...]] = {}
        self.first = Case(seed=seed * 101 + 1)
        drawn = self.drawn(self.first)
        self.sizes, self.choices, self.usual = drawn.sizes, drawn.choices, drawn.taken
        tensors, _ = template(drawn.args, drawn.kwargs)
        self.numbers: tuple[int, ...] = tuple(drawn.numbers.get(id(tensor), -1) for tensor in tensors)
        """For each tensor among the arguments, its number in the order of drawing; -1 if it is computed from others."""
        self.indices = drawn.indices

    @property
    def dtype(self) -> str:
        """The first dtype that the function accepts."""
        return self.dtypes[0] if self.dtypes else self.function.dtypes[0]

    def find_dtypes(self) -> None:
        """Find out which dtypes the function accepts in the first case."""
        accepted = []
        for dtype in self.function.dtypes:
            answer = self.ask(self.made(replace(self.first, dtype=dtype), gradients=False))
            if answer.raised:
                self.findings.refuse("value", f"{dtype}: {answer.raised}")
            else:
                accepted.append(dtype)
        self.dtypes = self.findings.accepted = tuple(accepted)

    def guarded(self) -> AbstractContextManager[Any]:
        """The context of every call of the function."""
        return self._guard()

    def case(self, number: int = 0, **changes: Any) -> Case:
        """The first case in the first accepted dtype, with other contents for another number."""
        return replace(self.first, **{"dtype": self.dtype, "seed": self.first.seed + number, **changes})

    def drawn(self, case: Case) -> Drawn:
        """Its arguments, on the device."""
        return drawn(self.function.example, case, self.device)

    def elements(self, case: Case) -> int:
        """How many elements its tensors have."""
        return elements(self.function.example, case)

    def made(self, case: Case, *, gradients: bool = True, **ways: Any) -> Call:
        """The call of a case, with gradients of all floating tensors and drawn upstream gradients."""
        drawn = self.drawn(case)
        tensors, arguments = template(drawn.args, drawn.kwargs)
        call = Call(tuple(tensors), arguments)
        if gradients and self.function.differentiable:
            wanted = tuple(place for place, tensor in enumerate(tensors) if tensor.is_floating_point())
            call = replace(call, wanted=wanted, upstream=self._drawn_upstream(case, call))
        return replace(call, **ways)

    def _drawn_upstream(self, case: Case, call: Call) -> tuple[Tensor, ...]:
        key = (str(case.sizes), str(case.choices))
        if key not in self._shapes:
            due = self.truth(call, case.dtype).outputs
            self._shapes[key] = tuple(tuple(output.value.shape) for output in due)
        draw = Draw(Case(dtype=case.dtype, seed=case.seed + 500_009), device=self.device)
        return tuple(draw.upstream(*shape) for shape in self._shapes[key])

    def ask(self, call: Call) -> Answer:
        """The answer of the function; what it did beside is noted.

        Raises:
            DeviceLost: nothing can run on the GPU any more.
        """
        with self._guard():
            answer = self.function.caller.call(call)
        if answer.crashed:
            raise DeviceLost(f"{_shown(call)}: {answer.crashed}")
        for relation in ("inputs_kept", "settings_kept", "no_shared_memory", "outputs_kept", "plain_tensors"):
            self.findings.tried[relation] += 1
        for relation, text in answer.complaints:
            if relation != "no_host_wait" or not self.function.waits:
                self.findings.add(relation, f"{_shown(call)}: {text}")
        if "a class of its own" in answer.raised:
            self.findings.add("plain_tensors", f"{_shown(call)}: {answer.raised}")
        return answer

    def fresh(self, call: Call) -> Answer:
        """The answer of the function in a process that has called nothing."""
        with self._guard():
            return self.function.caller.call_fresh(call)

    def truth(self, call: Call, dtype: str, factors: str = "") -> Truth:
        """The right answer. `factors` says what products round their factors to, if not to what the function states."""
        factors = factors or ("tf32" if self.function.tf32 else "float32")
        content = digest([*call.tensors, *call.upstream, *call.second])
        key = (content, str(call.arguments), call.wanted, call.twice, dtype, factors)
        if key not in self._truths:
            if len(self._truths) >= _KEPT:
                self._truths.clear()
            self._truths[key] = truth(self.function.reference, call, dtype, factors=factors, slack=self.function.slack)
        return self._truths[key]

    def wrong(self, call: Call, dtype: str, *, refusable: bool = False, finite_only: bool = False) -> list[str]:
        """Ask, and compare with the truth.

        Raises:
            Refusal: it raised, and may.
        """
        due = self.truth(call, dtype)
        answer = self.ask(call)
        if refusable and answer.raised:
            raise Refusal(answer.raised)
        return differences(answer, due, call.wanted, finite_only=finite_only)

    def wrong_either_way(self, call: Call, dtype: str, *, refusable: bool = False) -> list[str]:
        """The same with gradients, and without: a function can take another path then.

        Raises:
            Refusal: it raised, and may.
        """
        problems = self.wrong(call, dtype, refusable=refusable)
        if problems or not call.wanted:
            return problems
        due = Truth(self.truth(call, dtype).outputs, ())
        answer = self.ask(replace(call, wanted=(), upstream=()))
        if refusable and answer.raised:
            raise Refusal(answer.raised)
        return [f"without gradients, {difference}" for difference in differences(answer, due, ())]

    def examine(self, relation: str, case: Case, check: Check, what: str = "") -> bool:
        """Try a relation on a case; whether it holds. A violation is looked for in smaller cases, too.

        Args:
            what: the way of the call, for the text of a violation.
        """
        if len(self.findings.violations.get(relation, ())) >= _MOST:
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
        how = f" {what}" if what else ""
        self.findings.add(relation, f"{smallest.text()}{how}, {_shown(self._bare(smallest))}: {problems[0]}")
        return False

    def _bare(self, case: Case) -> Call:
        drawn = self.drawn(case)
        tensors, arguments = template(drawn.args, drawn.kwargs)
        return Call(tuple(tensors), arguments)

    def _shrunk(self, case: Case, check: Check, problems: list[str]) -> tuple[Case, list[str]]:
        """A case with smaller sizes on which the same relation fails."""
        attempts = 0
        for name, (least, most, step) in self.sizes.items():
            now = case.sizes.get(name, self.usual[name])
            for size in _smaller(now, least, most, step):
                attempts += 1
                if attempts > _ATTEMPTS:
                    return case, problems
                try:
                    again = check(case.with_size(name, size))
                except (Refusal, UnfitReference):
                    continue
                if again:
                    case, problems = case.with_size(name, size), again
                    break
        return case, problems


def _smaller(size: int, least: int, most: int | None, step: int) -> Iterator[int]:
    """Smaller sizes, smallest first."""
    tried = sorted({1, 2, 3, 5, size // 8, size // 4, size // 2, size * 3 // 4, size - 1})
    for candidate in tried:
        rounded = -(-candidate // step) * step
        if max(1, least) <= rounded < size and (most is None or rounded <= most):
            yield rounded


def _shown(call: Call) -> str:
    """Dtypes, shapes and layouts of the tensors of a call."""
    layouts = call.layouts or ("contiguous",) * len(call.tensors)
    shown = []
    for tensor, layout in zip(call.tensors, layouts, strict=True):
        text = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
        shown.append(text if layout == "contiguous" else f"{text} {layout}")
    return ", ".join(shown) + ("" if call.context == "plain" else f" ({call.context})")
