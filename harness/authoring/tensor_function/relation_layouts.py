"""Relations of layouts: an answer depends on the elements of a tensor, not on their strides and addresses."""

from __future__ import annotations

from dataclasses import replace

from harness.authoring.tensor_function.adversary import Adversary
from harness.authoring.tensor_function.drawing import Case
from harness.authoring.tensor_function.placed_memory import LAYOUTS, fits

__all__ = ["layouts", "upstream_layouts"]


def layouts(adversary: Adversary) -> None:
    """Every tensor in every layout, with NaN in the gaps, also of whole sizes. A layout may be refused."""
    for base in (adversary.case(500), adversary.whole(501)):
        _layouts(adversary, base)


def _layouts(adversary: Adversary, base: Case) -> None:
    shapes = [tuple(tensor.shape) for tensor in adversary.call_for(base, gradients=False).tensors]
    for place in range(len(shapes)):
        for layout in LAYOUTS[1:]:
            if not fits(shapes[place], layout):
                continue
            each = tuple(layout if index == place else "contiguous" for index in range(len(shapes)))
            number = adversary.numbers[place] if layout == "expanded" else -1
            if number >= 0 or layout != "expanded":
                _try(adversary, replace(base, equal_rows=number), each)
    if len(shapes) > 1:
        for layout in ("gaps", "transposed", "offset"):
            _try(adversary, base, tuple(layout if fits(shape, layout) else "contiguous" for shape in shapes))


def _try(adversary: Adversary, base: Case, each: tuple[str, ...]) -> None:
    def check(case: Case) -> list[str]:
        refusable = not adversary.function.any_layout
        return adversary.wrong_either_way(adversary.call_for(case, layouts=each), case.dtype, refusable=refusable)

    adversary.examine("layouts", base, check, f"layouts {', '.join(each)}")


def upstream_layouts(adversary: Adversary) -> None:
    """The upstream gradient in every layout; torch itself makes expanded and transposed ones."""
    call = adversary.call_for(adversary.case(520))
    if not call.upstream:
        adversary.findings.inapplicable["upstream_layouts"] = "no gradient is due"
        return
    for layout in LAYOUTS[1:]:
        if not any(fits(tuple(gradient.shape), layout) for gradient in call.upstream):
            continue

        def check(case: Case, layout: str = layout) -> list[str]:
            call = adversary.call_for(case, upstream_layout=layout)
            if layout == "expanded":
                alike = tuple(
                    gradient[:1].expand(gradient.shape).clone() if gradient.dim() else gradient
                    for gradient in call.upstream
                )
                call = replace(call, upstream=alike)
            return adversary.wrong(call, case.dtype)

        adversary.examine("upstream_layouts", adversary.case(520), check, f"upstream gradient {layout}")
