"""Run as a program: hands PTX to this machine's CUDA driver, and prints what it answered, as one JSON object.

Without a driver, `absent` says why. This imports nothing of the harness, so that the process starts quickly.
"""

from __future__ import annotations

import ctypes
import json
import sys

PTX = b".version 6.4\n.target sm_70\n.address_size 64\n.visible .entry harness_control() { ret; }\n"
_INTEGRATED = 18  # CU_DEVICE_ATTRIBUTE_INTEGRATED


def answered() -> dict[str, object]:
    """The driver's path, version and device, and its answer to PTX (`result`, a CUresult); or `absent`."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return {"absent": str(error)}
    version, device, context, module = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    driver.cuDriverGetVersion(ctypes.byref(version))
    steps = (
        ("cuInit", (0,)),
        ("cuDeviceGet", (ctypes.byref(device), 0)),
        ("cuDevicePrimaryCtxRetain", (ctypes.byref(context), device)),
        ("cuCtxSetCurrent", (context,)),
    )
    for name, arguments in steps:
        if result := getattr(driver, name)(*arguments):
            return {"absent": f"{name} answered {result}"}
    shared = ctypes.c_int()
    driver.cuDeviceGetAttribute(ctypes.byref(shared), _INTEGRATED, device)
    result = driver.cuModuleLoadData(ctypes.byref(module), PTX)
    return {"driver": _path(), "version": version.value, "integrated": bool(shared.value), "result": result}


def _path() -> str:
    """The file of the driver's library in this process."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return next((line.split(maxsplit=5)[5].strip() for line in maps if "libcuda.so" in line), "")


if __name__ == "__main__":
    json.dump(answered(), sys.stdout)
