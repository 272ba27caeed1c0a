"""Relations of many rows: sizes at which an index or an address no longer fits its integer type."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor

from harness.authoring.tensor_function.adversary import Adversary, Refusal
from harness.authoring.tensor_function.call import Call, filled
from harness.authoring.tensor_function.drawing import Case
from harness.authoring.tensor_function.hosting import tensors_of

__all__ = ["many_rows"]

_ROWS: Final = 2**16 + 1
"""More rows than 16 bits count."""
_ELEMENTS: Final = 2**31 + 1
"""More elements than 32 bits count."""
_WIDE: Final = 4096
"""The size of the other dimensions for so many elements, so that the rows are not too many."""
_SHARE: Final = 3
"""Times the bytes of its inputs that a call may need."""
_DRAWN: Final = 2**22
"""The most elements to draw, before rows repeat."""


def many_rows(adversary: Adversary) -> None:
    """Rows that repeat have results that repeat: past 65,536 rows, and past 2^31 elements if the GPU has the memory."""
    base = adversary.case(480, dtype=adversary.dtypes[-1])
    names = {name: places for name in adversary.sizes if (places := _row_tensors(adversary, base, name))}
    found = False
    for name, places in names.items():
        size = adversary.default_sizes[name]
        if not (outputs := _repeating(adversary, adversary.call_for(base, gradients=False), places, size)):
            continue
        found = True
        for case, rows in _cases(adversary, base, name, places):

            def check(case: Case, rows: int = rows, places: tuple[int, ...] = places, size: int = size) -> list[str]:
                call = adversary.call_for(case, gradients=False)
                with adversary.guarded():
                    raised, problems = adversary.function.caller.repeated(call, places, -(-rows // size), outputs)
                if raised:
                    raise Refusal(raised)
                return problems

            adversary.examine("many_rows", case, check, f"{rows} rows of {name}")
    if not found:
        adversary.findings.inapplicable["many_rows"] = "no results of rows depend on their row alone"


def _row_tensors(adversary: Adversary, base: Case, name: str) -> tuple[int, ...]:
    """Return the tensors that have one row for each of this size; none if it is another dimension of one, too."""
    size, step = adversary.default_sizes[name], adversary.sizes[name][2]
    if adversary.sizes[name][1] is not None:
        return ()
    before = adversary.call_for(base, gradients=False).tensors
    after = adversary.call_for(base.with_size(name, size + step), gradients=False).tensors
    places = tuple(
        place for place, pair in enumerate(zip(before, after, strict=True)) if pair[0].shape != pair[1].shape
    )
    alike = all(before[place].shape == (size, *after[place].shape[1:]) for place in places)
    return places if alike else ()


def _repeating(adversary: Adversary, call: Call, places: tuple[int, ...], size: int) -> tuple[int, ...]:
    """Return the outputs of the reference whose rows repeat if the rows of these tensors do."""
    tensors = [tensor.cpu().double() if tensor.is_floating_point() else tensor.cpu() for tensor in call.tensors]
    for place in places:
        tensors[place] = torch.cat([tensors[place]] * 2)
    args, kwargs = filled(call.arguments, tensors)
    found = []
    for place, output in enumerate(tensors_of(adversary.function.reference(*args, **kwargs))):
        if output.dim() and len(output) == 2 * size and torch.allclose(output[:size], output[size:], rtol=1e-9):
            found.append(place)
    return tuple(found)


def _cases(adversary: Adversary, base: Case, name: str, places: tuple[int, ...]) -> Iterator[tuple[Case, int]]:
    """Yield cases with the number of rows to try, as far as the memory permits."""
    yield base, _ROWS
    wide = replace(base, sizes={other: _WIDE for other in adversary.sizes if _widens(adversary, base, other, places)})
    if not wide.sizes or adversary.elements(wide) > _DRAWN:
        return
    tensors = adversary.call_for(wide, gradients=False).tensors
    rows = -(-_ELEMENTS // max(tensors[place][:1].numel() for place in places))
    needed = rows * sum(tensors[place][:1].nbytes for place in places)
    if rows <= _ELEMENTS // _WIDE + 1 and _SHARE * needed <= _free(tensors[0]):
        yield wide, rows


def _widens(adversary: Adversary, base: Case, name: str, places: tuple[int, ...]) -> bool:
    """Whether a size is the last dimension of one of these tensors, and may be so large."""
    _, most, step = adversary.sizes[name]
    if most is not None or _WIDE % step:
        return False
    before = adversary.call_for(base, gradients=False).tensors
    after = adversary.call_for(base.with_size(name, adversary.default_sizes[name] + step), gradients=False).tensors
    return any(before[place].shape[1:] != after[place].shape[1:] for place in places)


def _free(tensor: Tensor) -> int:
    """Return the bytes of the GPU that are free, with those that torch keeps for itself; 0 for a CPU."""
    if not tensor.is_cuda:
        return 0
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info(tensor.device)[0]
