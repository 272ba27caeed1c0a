"""A program on the fake driver: a product and its gradients by a library, five steps, and a dump of the third.

fake_engine.py OUT LIBRARY [--mark 3|none] [--late IMAGE] [--kind CALL] [--kernel NAME] [--spoil TENSOR]
"""

from __future__ import annotations

import argparse
import ctypes
from pathlib import Path

import numpy
from safetensors.numpy import save_file

parser = argparse.ArgumentParser()
parser.add_argument("out", type=Path)
parser.add_argument("library")
parser.add_argument("--mark", default="3")
parser.add_argument("--late", default="")
parser.add_argument("--kind", default="cuMemAlloc")
parser.add_argument("--kernel", default="gemm")
parser.add_argument("--spoil", default="")
given = parser.parse_args()

driver, library = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(given.library)
F = ctypes.POINTER(ctypes.c_float)


class Product(ctypes.Structure):
    """The argument of the kernel."""

    _fields_ = [
        *((name, F) for name in ("out", "a", "b")),
        *((name, ctypes.c_long) for name in ("m", "n", "k", "a_row", "a_column", "b_row", "b_column")),
    ]


def found(name: str) -> ctypes._FuncPointer:
    """An entry point, found as CUDA's runtime finds it."""
    address, status = ctypes.c_void_p(), ctypes.c_int()
    driver.cuGetProcAddress_v2(name.encode(), ctypes.byref(address), 13000, ctypes.c_uint64(0), ctypes.byref(status))
    return ctypes.CFUNCTYPE(ctypes.c_int)(address.value)


def floats(values: numpy.ndarray) -> ctypes.Array[ctypes.c_float]:
    return (ctypes.c_float * values.size)(*values.ravel().tolist())


found("cuInit")(0)
launch, kernel = found("cuLaunchKernel"), ctypes.create_string_buffer(given.kernel.encode())
ROWS, K, N = 6, 5, 4
chance = numpy.random.default_rng(0)
x, weight, gradient = (chance.normal(size=size).astype("float32") for size in ((ROWS, K), (K, N), (ROWS, N)))


def multiplied(a: numpy.ndarray, b: numpy.ndarray) -> numpy.ndarray:
    """The product by the library's kernel, in memory that it must write."""
    (m, k), n = a.shape, b.shape[1]
    memory = ctypes.c_uint64()
    if result := found(given.kind)(
        ctypes.byref(memory), ctypes.c_size_t(4 * m * n), ctypes.c_size_t(0), ctypes.c_size_t(0)
    ):
        raise SystemExit(f"{given.kind} answered {result}")
    out = ctypes.cast(memory.value or 0, F)
    ctypes.memset(out, 0, 4 * m * n)
    product = Product(out, ctypes.cast(floats(a), F), ctypes.cast(floats(b), F), m, n, k, k, 1, n, 1)
    library.product(launch, kernel, ctypes.byref(product))
    return numpy.ctypeslib.as_array(out, (m, n)).copy()


given.out.mkdir(parents=True, exist_ok=True)
for step in range(1, 6):
    output = multiplied(x, weight)
    if str(step) == given.mark:
        driver.cuProfilerStart()
    of_x, of_weight = multiplied(gradient, weight.T), multiplied(x.T, gradient)
    if str(step) == given.mark:
        driver.cuProfilerStop()
    if step == 3:
        tensors = {
            "x": x,
            "weight": weight,
            "output": output,
            "grad_output": gradient,
            "grad_x": of_x,
            "grad_weight": of_weight,
        }
        if given.spoil:
            tensors[given.spoil] = tensors[given.spoil] * numpy.float32(1.00001)
        save_file(tensors, given.out / "product-only.safetensors")
    if step == 4 and given.late:
        module = ctypes.c_void_p()
        found("cuModuleLoadData")(ctypes.byref(module), Path(given.late).read_bytes() + b"\0")
    print(f"step {step}/5 loss {1 / step}", flush=True)
