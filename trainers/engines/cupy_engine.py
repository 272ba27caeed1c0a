"""A plain loop of CuPy on the GPU, with cuBLAS and kernels that it compiles, as an engine for F-BLACKWELL-PTX-001."""

import argparse

import cupy

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20)
steps = parser.parse_args().steps
chance = cupy.random.RandomState(0)
inputs, wanted = (chance.standard_normal((512, width), dtype=cupy.float32) for width in (64, 8))
weights = cupy.zeros((64, 8), dtype=cupy.float32)
for step in range(1, steps + 1):
    error = inputs @ weights - wanted
    weights -= 0.1 * (inputs.T @ error) / len(inputs)
    print(f"step {step}/{steps} loss {float((error**2).mean()):.6f}", flush=True)
