"""The census of device code, on invented images."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.blackwell.archived.code_census import Look, census, summary
from harness.tools.inspect.device_code import DeviceCode, Form, Inspection

TARGETS = (75, 90, 121)
cells = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(TARGETS)), unique=True)


def machine(kernel: str, sm: int, **more: int) -> DeviceCode:
    return DeviceCode(Form.MACHINE_CODE, sm, f"sm_{sm}", (kernel,), 0, 1, noted_sm=sm, **more)


def ptx(kernel: str, target: str) -> DeviceCode:
    return DeviceCode(Form.PTX, int(re.sub(r"\D", "", target)), target, (kernel,), 0, 1)


def look(*codes: DeviceCode, wanted: str = "abc", vouched: bool = True, signs: tuple[str, ...] = ()) -> Look:
    found = (Inspection(Path("lib.so"), 1, codes, (), signs),)
    return Look(found, vouched, tuple(re.compile(f"^{name}$") for name in wanted), "engine.toml")


def cells_of(lines: Iterable[str]) -> list[str]:
    """The cells in the form "a for sm_90", without the reasons."""
    return [line.partition(":")[0] for line in lines]


def everything() -> list[DeviceCode]:
    return [machine(kernel, sm) for kernel in "abc" for sm in TARGETS]


@given(cells)
def test_exactly_what_is_not_there_is_missed(there: list[tuple[str, int]]) -> None:
    seen = census(look(*(machine(*cell) for cell in there)), TARGETS)
    absent = [line for line in seen.absent if not line.startswith("a kernel like")]
    missed = {(line[0], int(line.split("sm_")[1].split(":")[0])) for line in absent}
    kernels = {kernel for kernel, _ in there}
    assert missed == {(kernel, sm) for kernel in kernels for sm in TARGETS} - set(there)
    assert bool(seen.absent) is (len(there) < 9 and bool(there))
    assert bool(seen.unseen) is (not there)  # an engine without any code may make code at run time
    assert (seen.cells, seen.kernels) == (9, 3)


def test_ptx_is_there_for_its_target_and_later_ones_unless_bound_to_one() -> None:
    without = [code for code in everything() if code.kernels != ("a",)]
    seen = census(look(*without, ptx("a", "sm_90")), TARGETS)
    assert cells_of(seen.absent) == ["a for sm_75"]
    assert cells_of(seen.not_machine_code) == ["a for sm_90", "a for sm_121"]
    bound = census(look(*without, ptx("a", "sm_90a")), TARGETS)
    assert cells_of(bound.not_machine_code) == ["a for sm_90"]


@pytest.mark.parametrize("sign", ["pieces of PTX", "the names nvrtcCompileProgram"])
def test_signs_of_code_made_at_run_time_leave_the_rest_unseen(sign: str) -> None:
    """If the target has other code, missing code still counts as missing."""
    (reason,) = census(look(*everything(), signs=(sign,)), TARGETS).unseen
    assert reason.startswith("lib.so")
    assert reason.endswith(sign)
    half = [code for code in everything() if code.sm != 121]
    assert len(census(look(*half, signs=(sign,)), TARGETS).absent) == 3
    assert not census(look(signs=(sign,)), TARGETS).absent


def test_a_kernel_that_may_lie_in_a_file_that_nobody_named_is_not_missed() -> None:
    codes = [code for code in everything() if code.kernels != ("c",)]
    seen = census(look(*codes, vouched=False), TARGETS)
    (reason,) = seen.unseen
    assert seen.absent == ()
    assert "^c$" in reason


def test_where_nobody_says_which_kernels_are_needed_only_a_target_without_any_is_missed() -> None:
    codes = [code for code in everything() if code.sm != 121 and code.kernels != ("b",)]
    seen = census(look(*codes, wanted=""), TARGETS)
    assert cells_of(seen.absent) == ["any kernel for sm_121"]
    assert "/device_code/kernels" in seen.unseen[0]
    assert census(look(*codes, wanted="", vouched=False), TARGETS).absent == ()


def test_code_that_is_listed_under_another_target_contradicts_itself() -> None:
    seen = census(look(*everything(), machine("a", 120, listed_sm=121)), TARGETS)
    (line,) = seen.other_target
    assert line.startswith("lib.so, byte 0:")
    assert re.findall(r"sm_\d+", line) == ["sm_120", "sm_121"]
    assert census(look(*everything()), TARGETS).other_target == ()


def test_an_image_that_cannot_be_decoded_may_be_what_is_missed() -> None:
    shut = DeviceCode(Form.MACHINE_CODE, 121, None, (), 64, 9, "fatbin", reason="needs zstandard")
    seen = census(look(*(code for code in everything() if code.sm != 121), shut), TARGETS)
    assert seen.unseen == ("lib.so, byte 64: needs zstandard",)


def test_the_summary_says_how_many_kernels_each_target_has_and_as_what() -> None:
    lines = summary(look(machine("a", 121), ptx("b", "sm_90")), (90, 121))
    assert [re.findall(r"\d+", line) for line in lines] == [["90", "0", "1"], ["121", "1", "1"]]
