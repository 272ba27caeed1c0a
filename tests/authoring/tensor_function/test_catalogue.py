"""The adversary lets right functions pass, and finds each defect by the relation that is made for it.

Calls in fresh processes stay in this file: it has the most tests, so a worker runs it early. Fake tensors, which tests
of the probe make, start autograd's threads, and no later fork of that worker could differentiate.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from itertools import pairwise

import pytest
import torch

from harness.authoring.tensor_function import RELATIONS, Draw, TensorFunction, UnfitReference, try_relations
from harness.authoring.tensor_function.adversary import Findings
from harness.authoring.tensor_function.catalogue import ON_REQUEST
from harness.authoring.tensor_function.drawing import Case, drawn
from harness.authoring.tensor_function.likeness import like
from harness.authoring.tensor_function.sizes import sizes_of
from harness.tools.kernels.kernel_contract import constants_of
from tests.authoring.tensor_function.defects import DEFECTS
from tests.authoring.tensor_function.healthy import HEALTHY, softmax, softmax_reference

QUICK = [name for name, relation in RELATIONS.items() if not relation.needs_gpu and name != "compiled"] + [
    "larger",
    "many_rows",
]
"""torch's compiler takes seconds to import."""
FOUND_BY = {
    "remembered_by_address": "refilled", "remembered_by_identity": "refilled", "remembered_by_shape": "refilled",
    "remembered_by_address_and_version": "refilled", "remembered_by_sum": "history", "remembered_by_ends": "history",
    "remembered_without_eps": "history", "remembered_without_reduction": "history", "first_mean_kept": "history",
    "stale_after_thirty_calls": "history", "static_buffer": "outputs_kept", "static_gradient_buffer": "outputs_kept",
    "two_outputs_of_one_buffer": "no_shared_memory", "output_is_input": "no_shared_memory",
    "every_input_kept": "no_growth", "written_beyond_the_rows": "inputs_kept", "input_overwritten": "inputs_kept",
    "labels_overwritten": "inputs_kept", "tf32_switched_on": "settings_kept", "seed_set": "settings_kept",
    "tf32_switched_off": "settings_kept", "strides_ignored_of_wide_rows": "layouts",
    "rows_beyond_16_bits": "many_rows", "columns_beyond_a_vector": "larger",
    "clock_patched": "settings_kept",
    "lying_class": "plain_tensors", "comparisons_replaced": "value", "constant_output": "value",
    "offset_ignored": "layouts", "strides_ignored": "layouts", "strides_ignored_of_weight": "layouts",
    "upstream_strides_ignored": "upstream_layouts", "rows_beyond_a_block": "sizes", "last_block_dropped": "sizes",
    "single_row_wrong": "sizes", "mean_of_padded_width": "sizes", "sums_in_half": "sizes",
    "softmax_overflows": "special_values", "tied_maxima_halved": "special_values", "nan_swallowed": "nan_comes_out",
    "noise_of_its_own": "repeats", "second_derivative_wrong": "double_backward", "bfloat16_inside": "value",
    "float64_in_float32": "value", "gradient_of_one_input": "gradient", "gradient_if_all_need_it": "gradient",
    "other_path_without_gradient": "no_grad_modes", "wrong_if_inputs_are_one": "same_tensor_twice",
    "eps_ignored": "value", "last_row_only_for_bias": "gradient", "upstream_ignored": "gradient",
    "labels_wrapped": "indices_checked", "negative_labels_ignored": "indices_checked",
    "zero_upstream_taken_as_one": "gradient", "ignored_label_counts": "value",
    "nan_spread": "nan_stays_apart", "rows_cut": "shapes_checked",
}  # fmt: skip
STEPS = {"inputs_kept", "outputs_kept", "no_shared_memory", "settings_kept", "plain_tensors"}
"""Relations that are watched in the calls of others."""


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    """Put back what defects and hosts change in torch."""
    threads, elapsed_time = torch.get_num_threads(), torch.cuda.Event.elapsed_time
    yield
    torch.cuda.Event.elapsed_time = elapsed_time  # type: ignore[method-assign]
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", HEALTHY)
def test_right_functions_violate_nothing(name: str) -> None:
    """Every relation that concerns a function is tried, and holds."""
    known = HEALTHY[name]
    function = TensorFunction.of(
        known.function, known.reference, known.example, largest=1 << 8, dtypes=("float32", "bfloat16")
    )
    found = try_relations(function, QUICK, seed=1)
    assert found.violations == {}
    assert {relation for relation in QUICK if not found.tried[relation]} == set(found.inapplicable)


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_found_by_its_relation(name: str) -> None:
    """Only the relation named here, and one that makes calls for it, is tried."""
    base, made = DEFECTS[name]
    known, broken, relation = HEALTHY[base], made(), FOUND_BY[name]
    largest = {"rows_beyond_a_block": 1 << 14, "sums_in_half": 1 << 13}.get(name, 1 << 11)
    function = TensorFunction.of(broken, known.reference, known.example, largest=largest)
    names = ["layouts", "refilled", relation] if relation in STEPS else [relation]
    try:
        found = try_relations(function, names)
    finally:
        getattr(broken, "restore", lambda: None)()
    assert relation in found.violations


def test_every_defect_is_of_a_right_function() -> None:
    """The table names each defect once, and only relations that exist."""
    assert set(FOUND_BY) == set(DEFECTS)
    assert set(FOUND_BY.values()) <= {*RELATIONS, *ON_REQUEST}


def test_a_violation_names_the_smallest_case() -> None:
    """Sizes shrink as far as the relation still fails."""
    known = HEALTHY["softmax"]

    def wide_rows_wrong(x: torch.Tensor) -> torch.Tensor:
        return softmax(x) * (1.0 if x.shape[1] < 40 else 1.5)

    function = TensorFunction.of(wide_rows_wrong, known.reference, known.example, largest=1 << 9)
    found = try_relations(function, ["sizes"])
    assert found.violations["sizes"][0].startswith("float32 width=47 rows=1 seed")


def test_what_may_be_refused_is_listed() -> None:
    """A dtype and a layout that raise are no violations."""

    def strict(x: torch.Tensor) -> torch.Tensor:
        if x.dtype == torch.float64 or not x.is_contiguous():
            raise ValueError("contiguous, and no float64")
        return softmax(x)

    known = HEALTHY["softmax"]
    function = TensorFunction.of(strict, known.reference, known.example, largest=1 << 9)
    found = try_relations(function, ["value", "layouts"])
    assert found.violations == {}
    assert found.refused["value"] == ["float64: ValueError: contiguous, and no float64"]
    assert len(found.refused["layouts"]) == 3


def test_a_function_that_accepts_nothing_violates_value() -> None:
    """A refusal of everything is no way to pass."""

    def refuses(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("not today")

    known = HEALTHY["softmax"]
    found = try_relations(TensorFunction.of(refuses, known.reference, known.example), ["value", "layouts"])
    assert [*found.violations] == ["value"]


def test_a_crash_at_a_wrong_index_is_a_violation() -> None:
    """The index is tried in a process of its own."""

    def crashes(logits: torch.Tensor, labels: torch.Tensor, reduction: str) -> torch.Tensor:
        if int(labels.max()) >= logits.shape[1]:
            os.kill(os.getpid(), signal.SIGKILL)
        return HEALTHY["cross_entropy"].function(logits, labels, reduction)

    known = HEALTHY["cross_entropy"]
    found = try_relations(TensorFunction.of(crashes, known.reference, known.example), ["indices_checked"])
    assert "SIGKILL" in found.violations["indices_checked"][0]


def test_what_the_example_names_as_refused_raises() -> None:
    """A scalar, a dtype of one tensor alone and one of indices; each that is answered is named."""

    def example(draw: Draw) -> object:
        rows, classes = draw.size("rows"), draw.size("classes")
        logits, offsets = draw.tensor(rows, classes), draw.tensor(rows, classes, refused=("float32", "float16"))
        labels = draw.index(rows, below=classes, refused=("int32",))
        return logits, offsets, labels, draw.choice("smoothing", 0.0, 0.1, refused=(-0.5, 1.5))

    def reference(logits: torch.Tensor, offsets: torch.Tensor, labels: torch.Tensor, smoothing: float) -> torch.Tensor:
        picked = (logits + offsets).gather(-1, labels.long().unsqueeze(-1)).squeeze(-1)
        return picked * (1.0 - smoothing)

    def careful(logits: torch.Tensor, offsets: torch.Tensor, labels: torch.Tensor, smoothing: float) -> torch.Tensor:
        if logits.dtype != offsets.dtype or labels.dtype != torch.int64 or not 0.0 <= smoothing <= 1.0:
            raise ValueError("dtypes and smoothing")
        return reference(logits, offsets, labels, smoothing)

    found = try_relations(TensorFunction.of(careful, reference, example), ["arguments_checked"])
    assert (found.violations, found.tried["arguments_checked"]) == ({}, 4)  # the case is in float32
    found = try_relations(TensorFunction.of(reference, reference, example), ["arguments_checked"])
    assert _refused_arguments(found) == ["smoothing=-0.5", "smoothing=1.5"]  # tensors are converted rightly

    def careless(logits: torch.Tensor, offsets: torch.Tensor, labels: torch.Tensor, smoothing: float) -> torch.Tensor:
        bits = offsets if offsets.dtype == logits.dtype else offsets.view(torch.bfloat16).to(logits.dtype)
        return careful(logits, bits, labels, smoothing)

    found = try_relations(TensorFunction.of(careless, reference, example), ["arguments_checked"])
    assert _refused_arguments(found) == ["tensor 1 in float16"]


def _refused_arguments(found: Findings) -> list[str]:
    named = [text.partition(", ")[0].rpartition(" seed ")[2] for text in found.violations["arguments_checked"]]
    return [" ".join(text.split()[1:]) for text in named]


def test_a_reference_that_rounds_is_refused() -> None:
    """A reference in float32 cannot tell what is right."""
    known = HEALTHY["softmax"]
    function = TensorFunction.of(softmax, lambda x: softmax_reference(x.float()), known.example)
    with pytest.raises(UnfitReference, match="float32"):
        try_relations(function, ["value"])


def test_equal_seeds_try_equal_cases() -> None:
    """The violations are the same, word by word."""
    base, made = DEFECTS["single_row_wrong"]
    known = HEALTHY[base]
    twice = [
        try_relations(TensorFunction.of(made(), known.reference, known.example, largest=1 << 9), ["sizes"], seed=3)
        for _ in range(2)
    ]
    assert twice[0].violations == twice[1].violations != {}


def test_arguments_like_an_example() -> None:
    """Equal dimensions stay equal, indices stay below the dimension they point into, and negative ones are drawn."""
    labels = torch.tensor([0, 6, -100, 3, 2])
    example = like((torch.zeros(5, 7), labels), {"eps": 0.5, "mode": "mean"})
    found = drawn(example, Case(sizes={"n7": 11, "n5": 40}))
    logits, indices = found.args
    assert (logits.shape, indices.shape, found.kwargs["mode"]) == ((40, 11), (40,), "mean")
    assert set(indices.tolist()) <= {*range(11), -100}
    assert -100 in indices
    assert found.choices == {"eps": (0.5, 0.875)}


def test_sizes_lie_around_powers_and_constants() -> None:
    """Constants of the source count like powers of two; limits and steps hold."""
    assert constants_of("BLOCK = 48\nx = 0.5\nflag = True\n") == (48,)
    assert {47, 48, 49, 95, 63, 64, 65, 1, 97} <= set(sizes_of(1, None, 1, (48,)))
    assert sizes_of(8, 40, 8, (48,)) == [8, 16, 24, 32, 40]


def test_a_draw_changes_one_thing() -> None:
    """A touched element, and an equal first dimension, leave the rest as it was."""

    def example(draw: Draw) -> object:
        return draw.tensor(4, 6), draw.index(4, below=6)

    plain, changed = drawn(example, Case()), drawn(example, Case(changed_element=(0, 5)))
    assert (plain.args[0] != changed.args[0]).sum() == 2
    assert torch.equal(plain.args[0].flatten().sort().values, changed.args[0].flatten().sort().values)
    assert torch.equal(plain.args[1], changed.args[1])
    alike = drawn(example, Case(equal_rows=0)).args[0]
    assert torch.equal(alike, plain.args[0][:1].expand(4, 6))


def test_a_process_that_used_cuda_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork could not use CUDA any more."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.raises(RuntimeError, match="CUDA is in use"):
        TensorFunction.of(softmax, softmax_reference, HEALTHY["softmax"].example)


def test_classes_that_are_cut_show_whatever_the_labels_are() -> None:
    """A label beyond the cut raises for another reason."""

    def losses(student: torch.Tensor, teacher: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return (student - teacher).sum(-1) + student.gather(-1, labels.unsqueeze(-1)).squeeze(-1)

    def cut(student: torch.Tensor, teacher: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        least = min(student.shape[-1], teacher.shape[-1])
        return losses(student[:, :least], teacher[:, :least], labels)

    def example(draw: Draw) -> object:
        shape = draw.size("rows"), draw.size("classes")
        return draw.tensor(*shape), draw.tensor(*shape), draw.index(shape[0], below=shape[1])

    for seed in range(5):
        function = TensorFunction.of(cut, losses, example, largest=1 << 8)
        assert len(try_relations(function, ["shapes_checked"], seed=seed).violations["shapes_checked"]) == 2, seed
    function = TensorFunction.of(losses, losses, example, largest=1 << 8)
    assert not try_relations(function, ["shapes_checked"]).violations


def test_the_gradient_from_above_may_be_the_gradient() -> None:
    """torch's sum returns the same tensor, whose memory the harness refills for the next call."""

    def pair(draw: Draw) -> tuple[torch.Tensor, torch.Tensor]:
        rows, width = draw.size("rows"), draw.size("width")
        return draw.tensor(rows, width), draw.tensor(rows, width)

    names = [
        name for name, relation in RELATIONS.items() if not relation.needs_gpu and name not in ("compiled", "no_growth")
    ]
    found = try_relations(TensorFunction.of(torch.add, torch.add, pair, largest=512), names, device="cpu")
    assert found.violations == {}


def sums_of_sequences(rows: torch.Tensor, offsets: torch.Tensor, repeats: torch.Tensor) -> torch.Tensor:
    """The sum of each sequence of rows, so often as it repeats."""
    ends = offsets.tolist()
    sums = [rows[begin:end].sum(0) for begin, end in pairwise(ends)]
    return torch.stack(sums) * repeats.unsqueeze(-1)


@pytest.mark.parametrize("remembered", [1, 2])
def test_integers_that_are_computed_take_part_in_history(remembered: int) -> None:
    """Offsets follow from sizes and counts are no indices; a copy of either, remembered by address, is found."""

    def example(draw: Draw) -> object:
        first, second = draw.size("first", least=2), draw.size("second", least=2)
        return draw.tensor(first + second, 3), torch.tensor([0, first, first + second]), draw.counts(2, most=3)

    kept: dict[tuple[int, int], torch.Tensor] = {}

    def stale(*given: torch.Tensor) -> torch.Tensor:
        key = given[remembered].data_ptr(), len(given[0])
        copy = kept.setdefault(key, given[remembered].clone())
        return sums_of_sequences(*(copy if place == remembered else argument for place, argument in enumerate(given)))

    for function, violated in ((sums_of_sequences, False), (stale, True)):
        described = TensorFunction.of(function, sums_of_sequences, example, dtypes=("float32",), differentiable=False)
        assert bool(try_relations(described, ["history"]).violations) is violated


def test_a_layout_is_refused_only_if_that_is_declared() -> None:
    """A function that supports every layout must not raise for one."""

    def strict(x: torch.Tensor) -> torch.Tensor:
        if not x.is_contiguous():
            raise ValueError("contiguous")
        return softmax(x)

    known = HEALTHY["softmax"]
    function = TensorFunction.of(strict, known.reference, known.example, largest=1 << 9, any_layout=True)
    assert "it raised ValueError" in try_relations(function, ["layouts"]).violations["layouts"][0]
