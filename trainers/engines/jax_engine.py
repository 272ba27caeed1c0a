"""A plain loop of JAX on the GPU, as an engine for F-BLACKWELL-PTX-001."""

import argparse
import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # else it takes three quarters of a shared device

import jax
from jax import numpy

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20)
steps = parser.parse_args().steps
first, second, third, fourth = jax.random.split(jax.random.key(0), 4)
weights = [jax.random.normal(first, (64, 256)) / 8, jax.random.normal(second, (256, 8)) / 16]
inputs, wanted = jax.random.normal(third, (512, 64)), jax.random.normal(fourth, (512, 8))


@jax.jit
@jax.value_and_grad
def loss_of(weights):
    """Mean squared error of a network of two layers."""
    return ((jax.nn.gelu(inputs @ weights[0]) @ weights[1] - wanted) ** 2).mean()


for step in range(1, steps + 1):
    loss, gradients = loss_of(weights)
    weights = [weight - 0.1 * gradient for weight, gradient in zip(weights, gradients, strict=True)]
    print(f"step {step}/{steps} loss {float(numpy.asarray(loss)):.6f}", flush=True)
