"""F-PD-JAX-PLAN-001: planning the 27-site step on eight devices allocates nothing, and the plan divides the state."""

import math
import resource

from falsifiers.param_decomp.configuration import Configuration, configuration_of
from falsifiers.param_decomp.memory.subject import StepPlan
from falsifiers.param_decomp.oracle.model import site_names
from harness import Trial

_GIB = 2**30
_WIDTHS = {"float64": 8, "float32": 4, "bfloat16": 2}


def falsify(trial: Trial[StepPlan]) -> None:
    """Plan the step, and compare what does not depend on the compiler with the arithmetic of the shapes.

    On a CPU, XLA multiplies bfloat16 in float32. So the plan is for numbers of twice the width.
    """
    config = configuration_of(trial.parameters)
    before = _largest()
    with trial.subject_fault():
        plan = trial.subject.plan({})
    state, fixed = _expected(config, trial.parameters["devices"])
    trial.measure(
        host_growth_gib=(_largest() - before) / _GIB,
        live_bytes=_live_bytes(),
        arguments_bytes=plan.arguments,
        results_bytes=plan.results,
        temporaries_bytes=plan.temporaries,
        peak_bytes=plan.peak,
        arguments_off=abs(plan.arguments / (state + fixed) - 1),
        results_off=abs(plan.results / state - 1),
        shared_bytes=plan.shared,
    )
    trial.resolve(device="cpu", dtype=plan.dtype)


def _expected(config: Configuration, devices: int) -> tuple[float, float]:
    """Bytes on one device: the state that a step returns, and its other inputs.

    Components, matrices of the importance model and their moments are divided. Sources, and the frozen weights from the
    first decomposed layer on, are on every device.
    """
    hidden, inner, width = config.hidden, config.intermediate, config.importance_width
    sites = len(site_names(config))
    layers = config.last_layer - config.first_layer + 1
    shape = {"gate": hidden + inner, "up": hidden + inner, "down": hidden + inner, "q": 2 * hidden, "o": 2 * hidden}
    components = layers * sum(shape[kind] for kind in config.kinds) * config.components
    blocks = config.importance_blocks * (4 * width**2 + 2 * width * config.importance_hidden)
    matrices = hidden * width + blocks + width * sites * config.components
    biases = width + config.importance_blocks * (config.importance_hidden + width) + sites * config.components
    sources = sites * config.sequence * (config.components + 1)
    master, compute = _WIDTHS[config.dtype], _WIDTHS[config.compute_dtype]
    state = 3 * master * ((components + matrices) / devices + biases + sources)
    narrow = hidden // config.heads * config.kv_heads
    layer = 2 * hidden**2 + 2 * hidden * narrow + 3 * hidden * inner
    frozen = (config.layers - config.first_layer) * layer + hidden * config.vocabulary
    rows = math.ceil(config.batch / devices) * config.sequence * hidden
    return state, compute * (frozen + rows)


def _live_bytes() -> int:
    """Bytes of the arrays that JAX holds in this process."""
    import jax

    return sum(live_array.nbytes for live_array in jax.live_arrays())


def _largest() -> int:
    """The peak memory of this process, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
