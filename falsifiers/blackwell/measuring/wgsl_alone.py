"""The WGSL backend by itself: a block and its operations, also on an adapter with small limits."""

import math

from falsifiers.blackwell.faults.adapter import described
from falsifiers.blackwell.measuring.block_cases import BlockCase, block_case, block_error
from falsifiers.blackwell.measuring.operation_cases import (
    LARGEST,
    LARGEST_BATCH,
    elementwise_errors,
    norm_error,
    overlong_error,
    product_errors,
    rotation_errors,
    softmax_errors,
)
from falsifiers.blackwell.oracle.qwen2 import SHAPES as TRUE_SHAPES
from falsifiers.blackwell.oracle.qwen2 import TrueBlock
from falsifiers.blackwell.reference.backend import Backend
from falsifiers.blackwell.reference.shapes import SHAPES
from falsifiers.blackwell.subjects.wgpu_fallback import FallbackBlocks
from harness import Trial

_MOST_GROUPS = 61
"""Workgroups in one dimension of a small adapter: few, so that every kernel folds its workgroups into two."""
_FEW = 20_000
"""Elements of an operation on the adapter as it is."""
_MANY_ROWS = (2**13 + 5, 8)
"""The size of a norm with more rows than a batch of the reduced profile."""


def errors_in_wgsl(trial: Trial[FallbackBlocks]) -> list[float]:
    """Run forward and backward of a block in WGSL alone, with usual and with large attention scores.

    The sequences are longer than a workgroup. A longer run of NaN goes first: it is in a buffer that a shader did not
    write, and behind the end of one that a shader reads too far.

    Returns:
        The largest error of each block and of each operation, as a share of the expected size.
    """
    errors: list[float] = []
    model, sequence = trial.parameters["model"], trial.parameters["sequence"]
    truth, shape = TrueBlock(TRUE_SHAPES[model]), SHAPES[model]
    poison = block_case(truth.shape, (2, sequence + 133), trial.seed, trial.device)
    nothing = BlockCase(
        {name: weight * math.nan for name, weight in poison.weights.items()}, poison.x, poison.grad_output
    )
    with trial.subject_fault():
        block_error(trial.subject.fallback(), shape, nothing, {})
    for number, steep in enumerate((False, True)):
        size = (2, sequence // 8 * 8 + 128 + number)
        case = block_case(TRUE_SHAPES[model], size, 10 * trial.seed + number, trial.device, steep=steep)
        true = truth.gradients(case.x, case.weights, case.grad_output)
        with trial.subject_fault():
            errors.append(block_error(trial.subject.fallback(), shape, case, true))
            if not steep:  # only an even length can be cut at the adapter's alignment
                errors.append(block_error(_on_a_small_adapter(trial, size), shape, case, true))
    hidden, bound = truth.shape.hidden, _most_bound(trial, (2, sequence))
    with trial.subject_fault():
        small = _on_a_small_adapter(trial, (2, sequence))
        many = bound * 3 // 8  # half as many elements again as it binds at once
        for backend, elements in ((trial.subject.fallback(), _FEW), (small, many)):
            errors += product_errors(backend, trial.seed, trial.device)
            errors += rotation_errors(backend, elements, truth.shape.head_dim, trial.seed, trial.device)
            errors += softmax_errors(backend, elements, trial.seed, trial.device)
            errors += elementwise_errors(backend, elements, trial.seed, trial.device)
        errors.append(norm_error(small, (many // hidden, hidden), trial.seed, trial.device))
        errors.append(overlong_error(small, bound // 4 + 64, trial.device))
        errors.append(norm_error(trial.subject.fallback(), _MANY_ROWS, trial.seed, trial.device))
    return errors


def _on_a_small_adapter(trial: Trial[FallbackBlocks], size: tuple[int, int]) -> Backend:
    """The fallback of a new subject that sees an adapter just large enough for a block with `size` tokens.

    Launches are then cut into parts and folded. A software adapter calls itself a GPU if any adapter will do.
    """
    bound, (sequences, tokens) = _most_bound(trial, size), size
    scores = sequences * TRUE_SHAPES[trial.parameters["model"]].heads * tokens**2
    limits = {
        "max-storage-buffer-binding-size": bound,
        "max-buffer-size": 2 * max(bound, 4 * scores, 4 * LARGEST_BATCH),  # a subject may round sizes up
        "max-compute-workgroups-per-dimension": _MOST_GROUPS,
    }
    with described(limits, as_gpu=trial.parameters["adapter"] == "any"):
        return type(trial.subject)(trial.setting).fallback()


def _most_bound(trial: Trial[FallbackBlocks], size: tuple[int, int]) -> int:
    """Bytes of the largest operand or result of a product that cannot be cut."""
    shape = TRUE_SHAPES[trial.parameters["model"]]
    scores = shape.heads // shape.kv_heads * size[1] ** 2  # of the heads that share a key
    return 4 * max(shape.intermediate * max(shape.hidden, size[0] * size[1]), scores, LARGEST)
