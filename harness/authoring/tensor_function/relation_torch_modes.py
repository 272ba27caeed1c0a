"""Relations of contexts: torch's modes and compiler, differentiation of the gradients, and custom operators."""

from __future__ import annotations

from dataclasses import replace

from harness.authoring.tensor_function.adversary import Adversary, Refusal
from harness.authoring.tensor_function.against_truth import differences
from harness.authoring.tensor_function.drawing import Case, Draw

__all__ = ["autocast", "compiled", "double_backward", "no_grad_modes", "operator_check"]


def no_grad_modes(adversary: Adversary) -> None:
    """`torch.no_grad` and `torch.inference_mode` change no output."""
    for context in ("no_grad", "inference_mode"):

        def check(case: Case, context: str = context) -> list[str]:
            return adversary.wrong(adversary.call_for(case, gradients=False, context=context), case.dtype)

        adversary.examine("no_grad_modes", adversary.case(540), check, context)


def autocast(adversary: Adversary) -> None:
    """Under autocast to bfloat16, outputs and gradients are right within its rounding, or it refuses."""
    if "float32" not in adversary.dtypes:
        adversary.findings.inapplicable["autocast"] = "float32 is not accepted"
        return
    context = "autocast on CUDA" if adversary.device.startswith("cuda") else "autocast"

    def check(case: Case) -> list[str]:
        call = adversary.call_for(case)
        due = adversary.truth(call, "bfloat16", factors="bfloat16")
        answer = adversary.run(replace(call, context=context))
        if answer.raised:
            raise Refusal(answer.raised)
        return differences(answer, due, call.grad_inputs)

    adversary.examine("autocast", adversary.case(560, dtype="float32"), check, context)


def compiled(adversary: Adversary) -> None:
    """`torch.compile(fullgraph=True)` gives the same answer, or refuses."""

    def check(case: Case) -> list[str]:
        return adversary.wrong(adversary.call_for(case, context="compiled"), case.dtype, refusable=True)

    adversary.examine("compiled", adversary.case(580), check, "torch.compile(fullgraph=True)")


def double_backward(adversary: Adversary) -> None:
    """The gradients of the gradients are right, or asking for them raises."""
    if not adversary.function.differentiable:
        adversary.findings.inapplicable["double_backward"] = "no gradient is due"
        return

    def check(case: Case) -> list[str]:
        call = adversary.call_for(case)
        draw = Draw(Case(dtype=case.dtype, seed=case.seed + 700_001), device=adversary.device)
        second = tuple(draw.tensor(*call.tensors[place].shape) for place in call.grad_inputs)
        return adversary.wrong(replace(call, second=second), case.dtype, refusable=True)

    adversary.examine("double_backward", adversary.case(600), check, "the gradients of the gradients")


def operator_check(adversary: Adversary) -> None:
    """`torch.library.opcheck` finds nothing, for a custom operator."""
    with adversary.guarded():
        is_custom = adversary.function.caller.is_operator()
    if not is_custom:
        adversary.findings.inapplicable["operator_check"] = "it is no custom operator of torch.library"
        return

    def check(case: Case) -> list[str]:
        with adversary.guarded():
            problems = adversary.function.caller.operator_check(adversary.call_for(case, gradients=False))
        return [problems] if problems else []

    adversary.examine("operator_check", adversary.case(620), check)
