"""The memory of a compiled step by the compiler's own plan; nothing runs, and no tensor of it is allocated."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from falsifiers.param_decomp.configuration import Configuration, configuration_of
from falsifiers.param_decomp.memory.subject import Plan
from falsifiers.param_decomp.reference import jax_model, jax_step
from falsifiers.param_decomp.reference.jax_trainer import QUICK, Layout, mesh_of, state_shapes, suffix_names
from harness import Setting

_OPTIONS = {**QUICK, "xla_cpu_enable_concurrency_optimized_scheduler": False}
"""The CPU's default scheduler starts operations early. This one keeps few bytes live, as a GPU's does."""


class JaxPlan:
    """Lowers and compiles the step for shapes and shardings alone."""

    def __init__(self, setting: Setting) -> None:
        self.setting, self.options = setting, _OPTIONS
        self.mesh = mesh_of(setting.parameters["devices"])

    def plan(self, workload: Mapping[str, Any]) -> Plan:
        config, layout, arguments = self._step(workload)

        def step(*arguments: Any) -> Any:
            state, seen = jax_step.train_step(config, self.mesh, *arguments)
            return state, seen.terms

        compiled = jax.jit(step, out_shardings=(layout.state(), None)).lower(*arguments).compile(self.options)
        return planned(compiled, next(iter(compiled.out_info[0].components.values())).dtype)

    def kept(self, workload: Mapping[str, Any]) -> tuple[int, int]:
        _, _, arguments = self._step(workload)
        return _bytes(arguments), _bytes(arguments[0])

    def _step(self, workload: Mapping[str, Any]) -> tuple[Configuration, Layout, tuple[Any, ...]]:
        """The configuration with the workload's parameters, its layout, and the arguments of a step without data."""
        config = configuration_of({**self.setting.parameters, **workload})
        layout, compute = Layout(config, self.mesh), jnp.dtype(config.compute_dtype)
        everywhere = partial(jax.ShapeDtypeStruct, sharding=layout.everywhere)
        shapes = jax_model.target_shapes(config)
        arguments = (
            jax.tree.map(_placed, state_shapes(config), layout.state()),
            {name: everywhere(shapes[name], compute) for name in suffix_names(config)},
            jax.ShapeDtypeStruct((config.batch, config.sequence, config.hidden), compute, sharding=layout.rows),
            everywhere((), jnp.dtype(config.dtype)),
            everywhere((2,), jnp.uint32),
        )
        return config, layout, arguments


def planned(compiled: Any, dtype: Any) -> Plan:
    """The compiler's figures for the compiled function with a state of that dtype."""
    analysis = compiled.memory_analysis()
    return Plan(
        analysis.argument_size_in_bytes,
        analysis.temp_size_in_bytes,
        analysis.output_size_in_bytes,
        analysis.alias_size_in_bytes,
        str(dtype),
    )


def _bytes(shapes: Any) -> int:
    """The bytes on the first device."""
    return sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes)
    )


def _placed(shape: jax.ShapeDtypeStruct, place: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=place)
