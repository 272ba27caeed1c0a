"""A plain loop of NVIDIA Warp on the GPU, which hands the driver cubins or PTX, for F-BLACKWELL-PTX-001."""

import argparse

import numpy
import warp

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--code", choices=("cubin", "ptx"), default="cubin")
parser.add_argument("--cache", required=True)
asked = parser.parse_args()
warp.config.cuda_output = asked.code
warp.config.kernel_cache_dir = asked.cache
warp.init()


@warp.kernel
def descend(weights: warp.array(dtype=float), wanted: warp.array(dtype=float), loss: warp.array(dtype=float)):
    """One step of gradient descent on the squared distance of each weight to its target."""
    place = warp.tid()
    error = weights[place] - wanted[place]
    warp.atomic_add(loss, 0, error * error)
    weights[place] = weights[place] - 0.2 * error


wanted = warp.array(numpy.random.default_rng(0).normal(size=4096), dtype=float, device="cuda")
weights = warp.zeros_like(wanted)
for step in range(1, asked.steps + 1):
    loss = warp.zeros(1, dtype=float, device="cuda")
    warp.launch(descend, dim=4096, inputs=[weights, wanted, loss], device="cuda")
    print(f"step {step}/{asked.steps} loss {loss.numpy()[0] / 4096:.6f}", flush=True)
