"""Record the answers of NVML on this machine, in the format that stand_in/pynvml.py replays.

python tests/recorded/record_nvml.py "what runs on the GPU meanwhile" > tests/recorded/nvml-NAME.json
"""

from __future__ import annotations

import json
import platform
import re
import sys
from pathlib import Path
from typing import Any

import pynvml

SYSTEM = ("nvmlSystemGetDriverVersion", "nvmlSystemGetCudaDriverVersion_v2", "nvmlDeviceGetCount")
DEVICE: dict[str, tuple[int, ...]] = {
    "nvmlDeviceGetName": (),
    "nvmlDeviceGetUUID": (),
    "nvmlDeviceGetCudaComputeCapability": (),
    "nvmlDeviceGetMemoryInfo": (),
    "nvmlDeviceGetAddressingMode": (),
    "nvmlDeviceGetMigMode": (),
    "nvmlDeviceGetUtilizationRates": (),
    "nvmlDeviceGetPowerUsage": (),
    "nvmlDeviceGetTemperature": (pynvml.NVML_TEMPERATURE_GPU,),
    "nvmlDeviceGetClockInfo": (pynvml.NVML_CLOCK_SM,),
    "nvmlDeviceGetComputeRunningProcesses": (),
}


def ask(function: str, *arguments: Any) -> dict[str, Any]:
    """One answer, or NVML's error number."""
    try:
        return {"value": plain(getattr(pynvml, function)(*arguments))}
    except pynvml.NVMLError as error:
        return {"error": error.value}


def plain(value: Any) -> Any:
    """An answer as JSON values: structures become objects of their fields."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    names = [name for name, *_ in getattr(value, "_fields_", [])] or list(vars(value))
    return {name: plain(getattr(value, name)) for name in names}


def main() -> None:
    """Ask everything once and print it."""
    system = {"nvmlInit": ask("nvmlInit")}
    system |= {function: ask(function) for function in SYSTEM}
    devices = []
    for index in range(system["nvmlDeviceGetCount"].get("value", 0)):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        devices.append({function: ask(function, handle, *rest) for function, rest in DEVICE.items()})
    total = re.search(r"^MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    header = {
        "origin": "recorded with record_nvml.py",
        "machine": f"{platform.machine()}, Linux {platform.release()}",
        "meanwhile": " ".join(sys.argv[1:]),
    }
    memory = int(total[1]) if total else None
    print(json.dumps({"header": header, "mem_total_kib": memory, "system": system, "devices": devices}, indent=1))


if __name__ == "__main__":
    main()
