"""A program on the fake driver: loads images, allocates, copies, launches, and prints what it computed.

fake_engine.py [--image FILE]… [--linked FILE]… [--launches N] [--threads N] [--kernels N]
               [--opens LIBRARY] [--allocation NAME] [--launch NAME] [--end exit|kill|worker-killed|nothing]
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--image", action="append", default=[])
parser.add_argument("--library", action="append", default=[])
parser.add_argument("--linked", action="append", default=[])
parser.add_argument("--launches", type=int, default=3)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--kernels", type=int, default=1)
parser.add_argument("--opens", default="libcuda.so.1")
parser.add_argument("--allocation", default="cuMemAlloc")
parser.add_argument("--launch", default="cuLaunchKernel")
parser.add_argument("--end", default="exit")
given = parser.parse_args()
if given.end == "nothing":
    sys.exit()
if given.end == "worker-killed":
    subprocess.run([sys.executable, __file__, "--end", "kill"], check=False)

opened = ctypes.CDLL(given.opens)  # Warp opens libcuda.so; the runtime in it then opens the other name
driver = ctypes.CDLL("libcuda.so.1")


def found(name: str, version: int = 13000) -> ctypes._FuncPointer:
    """An entry point, found as CUDA's runtime finds it."""
    address, status = ctypes.c_void_p(), ctypes.c_int()
    if driver.cuGetProcAddress_v2(
        name.encode(), ctypes.byref(address), version, ctypes.c_uint64(0), ctypes.byref(status)
    ):
        sys.exit(f"no {name}")
    return ctypes.CFUNCTYPE(ctypes.c_int)(address.value)


module, memory = ctypes.c_void_p(), ctypes.c_uint64()
found("cuInit")(0)
for path in given.image:
    if result := found("cuModuleLoadData")(ctypes.byref(module), Path(path).read_bytes() + b"\0"):
        sys.exit(f"cuModuleLoadData answered {result}")
for path in given.library:
    found("cuLibraryLoadData")(ctypes.byref(module), Path(path).read_bytes() + b"\0", None, None, 0, None, None, 0)
for path in given.linked:
    data = Path(path).read_bytes()
    driver.cuLinkAddData_v2(None, 1, data, ctypes.c_size_t(len(data)), None, 0, None, None)
shape = [ctypes.c_size_t(64)]
if given.allocation == "cuMemAllocPitch":
    shape = [ctypes.byref(ctypes.c_size_t()), ctypes.c_size_t(16), ctypes.c_size_t(4)]
if result := found(given.allocation)(ctypes.byref(memory), *shape, *[ctypes.c_size_t(0)] * 2):
    sys.exit(f"{given.allocation} answered {result}")
found("cuMemcpyHtoD")(memory, b"a" * 64, ctypes.c_size_t(64))
names = [ctypes.create_string_buffer(f"kernel_{index}_{'x' * 40}".encode()) for index in range(given.kernels)]
launch = found(given.launch)


def work() -> None:
    """Launch every kernel in turn."""
    for index in range(given.launches):
        launch(names[index % len(names)], 1, 1, 1, 1, 1, 1, 0, None, None, None)


threads = [threading.Thread(target=work) for _ in range(given.threads)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
copied = ctypes.string_at(memory.value or 0, 64)
print(f"step 1/1 loss {driver.fakeSum()}.0 copied {copied.decode('latin-1')}", flush=True)
if given.end == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
