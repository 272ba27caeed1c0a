"""A plain loop of JAX on the GPU, as an engine for the claims of docs/blackwell.md."""

import argparse
import ctypes
import os
from pathlib import Path

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # else it takes three quarters of a shared device

import jax
from jax import numpy
from safetensors.numpy import save_file

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--out", type=Path, required=True)
parser.add_argument("--precision", default="highest")  # "default" takes TF32
asked = parser.parse_args()
steps = asked.steps
asked.out.mkdir(parents=True, exist_ok=True)
jax.config.update("jax_default_matmul_precision", asked.precision)
first, second, third, fourth = jax.random.split(jax.random.key(0), 4)
weights = [jax.random.normal(first, (64, 256)) / 8, jax.random.normal(second, (256, 8)) / 16]
inputs, wanted = jax.random.normal(third, (512, 64)), jax.random.normal(fourth, (512, 8))


@jax.jit
@jax.value_and_grad
def loss_of(weights):
    """Mean squared error of a network of two layers."""
    return ((jax.nn.gelu(inputs @ weights[0]) @ weights[1] - wanted) ** 2).mean()


def backward(x, weight, gradient):
    """The gradients of x @ weight, as JAX differentiates it."""
    return jax.vjp(numpy.matmul, x, weight)[1](gradient)


driver = ctypes.CDLL("libcuda.so.1")
hidden, output_gradient = jax.nn.gelu(inputs @ weights[0]), jax.random.normal(fourth, (512, 8))
jax.block_until_ready((backward(hidden, weights[1], output_gradient), hidden @ weights[1]))
for step in range(1, steps + 1):
    loss, gradients = loss_of(weights)
    weights = [weight - 0.1 * gradient for weight, gradient in zip(weights, gradients, strict=True)]
    print(f"step {step}/{steps} loss {float(numpy.asarray(loss)):.6f}", flush=True)
    if step == 3:  # the warm-up is over
        jax.effects_barrier()
        driver.cuProfilerStart()
        of_x, of_weight = jax.block_until_ready(backward(hidden, weights[1], output_gradient))
        driver.cuProfilerStop()
        product = {"x": hidden, "weight": weights[1], "output": hidden @ weights[1], "grad_output": output_gradient}
        product |= {"grad_x": of_x, "grad_weight": of_weight}
        save_file(
            {name: jax.device_get(value) for name, value in product.items()}, asked.out / "product-last.safetensors"
        )
