"""The decomposition in JAX: a step compiled for several devices, which a CPU simulates."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from falsifiers.param_decomp.configuration import Configuration, configuration_of
from falsifiers.param_decomp.reference import jax_model, jax_step
from falsifiers.param_decomp.reference.jax_step import ROWS, Seen, State
from falsifiers.param_decomp.subject import CompiledStep
from harness import Setting

QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
"""Compiler options: these steps take longer to compile than to run."""

Tensors = Mapping[str, Any]


def mesh_of(devices: int) -> Mesh:
    """A mesh of simulated devices with the single axis ROWS. JAX must not have started in this process.

    Raises:
        RuntimeError: it has started with fewer devices.
    """
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_num_cpu_devices", devices)
    if len(jax.devices()) != devices:
        raise RuntimeError(f"JAX has {len(jax.devices())} devices, and {devices} are asked for")
    return Mesh(np.array(jax.devices()), (ROWS,))


class Layout:
    """The placement of a step's tensors: which dimension of each is divided over the devices of a mesh."""

    def __init__(self, config: Configuration, mesh: Mesh) -> None:
        """Components are divided along C, importance matrices along their output; the rest is replicated."""
        self.config, self.mesh = config, mesh

    def component(self, which: str) -> NamedSharding:
        """V [d_in, C] or U [C, d_out]."""
        return self.on(None, ROWS) if which == "V" else self.on(ROWS, None)

    def importance(self, shape: tuple[int, ...]) -> NamedSharding:
        """A weight of the importance model."""
        divisible = len(shape) == 2 and shape[1] % self.mesh.size == 0
        return self.on(None, ROWS) if divisible else self.everywhere

    def state(self) -> State:
        """The sharding of each tensor of a state."""
        names = jax_model.sites(self.config)
        parts = {
            "components": {f"{name}.{which}": self.component(which) for name in names for which in "VU"},
            "importance": {
                name: self.importance(shape) for name, shape in jax_model.importance_shapes(self.config).items()
            },
            "sources": dict.fromkeys(names, self.everywhere),
        }
        slots = {name: (part, part) for name, part in parts.items()}
        return State(**parts, slots=slots, steps=self.everywhere, ascents=self.everywhere)

    def on(self, *axes: str | None) -> NamedSharding:
        """A tensor's dimensions in order: divided over an axis of the mesh, or None."""
        return NamedSharding(self.mesh, PartitionSpec(*axes))

    @property
    def everywhere(self) -> NamedSharding:
        """Replicated on each device."""
        return self.on()

    @property
    def rows(self) -> NamedSharding:
        """The first dimension is divided."""
        return self.on(ROWS)


def state_shapes(config: Configuration) -> State:
    """A state whose tensors are their shapes and dtypes."""
    dtype, names = jnp.dtype(config.dtype), jax_model.sites(config)
    target, count = jax_model.target_shapes(config), jax.ShapeDtypeStruct((), jnp.int32)
    shapes: dict[str, dict[str, tuple[int, ...]]] = {
        "components": {
            f"{name}.{which}": (target[name][0], config.components)
            if which == "V"
            else (config.components, target[name][1])
            for name in names
            for which in "VU"
        },
        "importance": jax_model.importance_shapes(config),
        "sources": dict.fromkeys(names, (1, config.sequence, config.components + 1)),
    }
    parts = {
        group: {name: jax.ShapeDtypeStruct(shape, dtype) for name, shape in of.items()} for group, of in shapes.items()
    }
    return State(**parts, slots={group: (part, part) for group, part in parts.items()}, steps=count, ascents=count)


def initial_state(config: Configuration, layout: Layout, generator: np.random.Generator) -> State:
    """Normal matrices that preserve the scale of their inputs, uniform sources, and moments of 0.

    They are drawn on the host, one after the other, and each device gets its part.
    """

    def drawn(shape: jax.ShapeDtypeStruct, place: NamedSharding) -> jax.Array:
        if len(shape.shape) == 3:
            numbers = generator.random(shape.shape)
        elif len(shape.shape) == 2:
            numbers = generator.normal(size=shape.shape) / math.sqrt(shape.shape[0])
        else:
            numbers = np.zeros(shape.shape)
        return jax.device_put(numbers.astype(shape.dtype), place)

    shapes, places = state_shapes(config), layout.state()
    parts = [jax.tree.map(drawn, shapes[group], places[group]) for group in range(3)]
    # Initial importances lie on both sides of 0 and of 1.
    bias = parts[1]["output.bias"]
    parts[1]["output.bias"] = jax.device_put(np.full(bias.shape, 0.5, bias.dtype), layout.everywhere)
    zeros = partial(jax.tree.map, lambda shape, place: jax.device_put(np.zeros(shape.shape, shape.dtype), place))
    slots, steps, ascents = (zeros(shapes[group], places[group]) for group in range(3, 6))
    return State(*parts, slots=slots, steps=steps, ascents=ascents)


def initial_target(config: Configuration, layout: Layout, generator: np.random.Generator) -> dict[str, jax.Array]:
    """Random frozen weights, in the compute dtype."""
    dtype = jnp.dtype(config.compute_dtype)
    return {
        name: jax.device_put((generator.normal(size=shape) / math.sqrt(shape[0])).astype(dtype), layout.everywhere)
        for name, shape in jax_model.target_shapes(config).items()
    }


def suffix_names(config: Configuration) -> list[str]:
    """The frozen weights that a step uses: from the first decomposed layer on."""
    names = list(jax_model.target_shapes(config))
    return names[names.index(f"layers.{config.first_layer}.self_attn.q_proj") :]


class JaxDecomposition:
    """A target with random weights and its decomposition, divided over simulated devices."""

    def __init__(self, setting: Setting) -> None:
        self.config = config = configuration_of(setting.parameters)
        self.mesh = mesh_of(setting.parameters["devices"])
        self.layout = layout = Layout(config, self.mesh)
        self.seed, generator = setting.seed, np.random.default_rng(setting.seed)
        self.state = initial_state(config, layout, generator)
        self.target = initial_target(config, layout, generator)
        self.suffix = {name: self.target[name] for name in suffix_names(config)}
        self.prefix = jax.jit(partial(jax_model.prefix, config), out_shardings=layout.rows, compiler_options=QUICK)
        step = partial(jax_step.train_step, config, self.mesh)
        self.compiled: Callable[..., tuple[State, Seen]] = jax.jit(
            step, out_shardings=(layout.state(), None), compiler_options=QUICK
        )

    def step(self, step: int) -> CompiledStep:
        residual = self.prefix(self.target, self.batch(step))
        number = jnp.asarray(step, self.config.dtype)
        key = jax.random.fold_in(jax.random.PRNGKey(self.seed), step)
        self.state, seen = self.compiled(self.state, self.suffix, residual, number, key)
        terms = {name: float(value) for name, value in seen.terms.items()}
        return CompiledStep(terms, _as_stored(seen.gradients), seen.masks)

    def batch(self, step: int) -> jax.Array:
        """Random tokens: a function of seed and step."""
        shape = (self.config.batch, self.config.sequence)
        tokens = np.random.default_rng((self.seed, step)).integers(self.config.vocabulary, size=shape)
        return jax.device_put(tokens, self.layout.rows)

    def target_weights(self) -> Tensors:
        return self.target

    def components(self) -> Tensors:
        return self.state.components

    def importance_weights(self) -> Tensors:
        """Matrices as [d_out, d_in]."""
        return _as_stored(self.state.importance)

    def sources(self) -> Tensors:
        return self.state.sources

    def slots(self) -> Mapping[str, Mapping[str, Any]]:
        """The slots of all three groups, once they have been updated."""
        counts = {"components": self.state.steps, "importance": self.state.steps, "sources": self.state.ascents}
        by_name = {}
        for group, (first, second) in self.state.slots.items():
            suffix = ".source" if group == "sources" else ""
            first, second = _as_stored(first), _as_stored(second)
            if int(counts[group]):
                by_name |= {
                    f"{name}{suffix}": {"exp_avg": first[name], "exp_avg_sq": second[name], "step": counts[group]}
                    for name in first
                }
        return by_name


def _as_stored(tensors: Tensors) -> dict[str, Any]:
    """Weights of the importance model as [d_out, d_in]; all others unchanged."""
    return {name: tensor.T if name.endswith(".weight") else tensor for name, tensor in tensors.items()}
