"""The memory of a step that XLA compiles for many B200. No B200 is needed, and nothing runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh

from falsifiers.param_decomp.memory.subject import Plan
from falsifiers.param_decomp.reference.jax_plan import JaxPlan, planned
from falsifiers.param_decomp.reference.jax_step import ROWS
from falsifiers.param_decomp.reference.jax_trainer import Layout, mesh_of
from harness import NotMeasured, Setting

_DEVICE = Path(__file__).parents[1] / "configurations" / "b200.txtpb"
"""The device description of a B200, from xla/backends/gpu/target_config/specs/b200.txtpb of openxla/xla."""
_NODE = 8
_OPTIONS = {
    # Without a GPU no kernel can be timed, and an untuned Triton kernel may need too much shared memory.
    "xla_gpu_autotune_level": 0,
    "xla_gpu_enable_triton_gemm": False,
    # The kernels never run; none of these options changes the buffers.
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_gpu_disable_gpuasm_optimizations": True,
}


class B200Plan(JaxPlan):
    """The plan of XLA's compiler for CUDA."""

    def __init__(self, setting: Setting) -> None:
        """Describe the nodes to XLA. JAX starts on the CPU, and finds its CUDA plugin.

        Raises:
            NotMeasured: there is no plugin, or it cannot describe absent devices.
        """
        mesh_of(1)
        nodes = setting.parameters["devices"] // _NODE
        try:
            topology = topologies.get_topology_desc(
                platform="cuda", target_config=_DEVICE.read_text(encoding="utf-8"), topology=f"1x{nodes}x{_NODE}"
            )
        except RuntimeError as error:
            raise NotMeasured(f"JAX cannot compile for a B200 here: {error}") from error
        self.setting, self.options = setting, _OPTIONS
        self.mesh = Mesh(np.array(topology.devices), (ROWS,))

    def replicated(self) -> Plan:
        return self._copied(lambda layout, tree: jax.tree.map(lambda _: layout.everywhere, tree))

    def divided(self) -> Plan:
        return self._copied(lambda _, tree: jax.tree.map(lambda array: array.sharding, tree))

    def _copied(self, places: Callable[[Layout, Any], Any]) -> Plan:
        _, layout, (state, *_) = self._step({})
        copy = jax.jit(lambda tree: tree, out_shardings=places(layout, state.components))
        compiled = copy.lower(state.components).compile(self.options)
        return planned(compiled, next(iter(state.components.values())).dtype)
