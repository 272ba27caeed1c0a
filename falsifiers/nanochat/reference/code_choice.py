"""How a GPU runs code that was built for others."""

from collections.abc import Sequence
from typing import Literal

from harness import Setting


class DriverRules:
    """The driver's compatibility rules. Capabilities are integers, such as 121 for 12.1. See `CodeChoice`."""

    def __init__(self, setting: Setting) -> None: ...

    def how(self, architectures: Sequence[str], capability: str) -> Literal["machine code", "PTX", "not at all"]:
        device = int(capability.replace(".", ""))
        if any(
            self.machine_code_runs(architecture.removeprefix("sm_"), device)
            for architecture in architectures
            if architecture[:3] == "sm_"
        ):
            return "machine code"
        ptx = [
            architecture.removeprefix("compute_")
            for architecture in architectures
            if architecture.startswith("compute_")
        ]
        return "PTX" if any(self.ptx_runs(version, device) for version in ptx) else "not at all"

    def machine_code_runs(self, target: str, device: int) -> bool:
        """Return whether code for a target such as "120a" runs on a device such as 121."""
        number = int(target.rstrip("af"))
        if target.endswith("a"):
            return number == device
        return number // 10 == device // 10 and number <= device

    def ptx_runs(self, target: str, device: int) -> bool:
        """Return whether the driver can compile PTX of a target for a device."""
        return int(target) <= device if target.isdecimal() else self.machine_code_runs(target, device)
