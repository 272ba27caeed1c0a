"""The text about device code in a file."""

from __future__ import annotations

from pathlib import Path

from harness.report.terminal.printing import lines_of
from harness.tools.inspect.device_code import DeviceCode, Form, Inspection
from harness.tools.inspect.text import device_code_page


def test_the_targets_of_a_kernel_stand_in_order_whatever_the_order_in_the_file() -> None:
    targets = [(Form.PTX, 75), (Form.MACHINE_CODE, 100), (Form.MACHINE_CODE, 90), (Form.MACHINE_CODE, 121)]
    codes = tuple(DeviceCode(form, sm, None, ("add",), 64 * at, 64) for at, (form, sm) in enumerate(targets))
    *_, (last, _) = lines_of(device_code_page(Inspection(Path("libengine.so"), 256, codes, ())))
    assert last == "add  sm_90, sm_100, sm_121, PTX for sm_75"
