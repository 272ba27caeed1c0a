"""The subject of `harness kernel check`: the function that a user names, healthy or with a defect planted in it."""

from __future__ import annotations

from harness.authoring.setting import Setting
from harness.authoring.tensor_function.hosting import Host
from harness.contract.entry_point import resolve
from harness.tools.kernels.planted_defects import DEFECTS

__all__ = ["of_function"]


def of_function(setting: Setting) -> Host:
    """Return what calls the setting's `function`, with its `defect`.

    The function's module is imported here, after all that judges it.
    """
    function = resolve(setting.parameters["function"])
    defect = setting.parameters.get("defect")
    return Host(function if defect is None else DEFECTS[defect].plant(function))
