"""The configuration of a decomposition, from the parameters of a profile.

The parameter `configuration` names a file of `configurations/`; other parameters with the name of a field replace its
value. Subjects and oracle read the same configuration, because the claims are stated about it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

_FILES = Path(__file__).parent / "configurations"


@dataclass(frozen=True)
class Configuration:
    """The sizes, coefficients and schedules of a decomposition.

    Attributes:
        layers, hidden, intermediate, heads, kv_heads, vocabulary: the target, a Llama decoder.
        first_layer, last_layer: the decomposed layers, both included, counted from 0.
        kinds: the decomposed matrices of a layer, of q, k, v, o, gate, up, down, in the order of the sites.
        components: C, the rank-1 components of a site. A source has one more channel, for the residual.
        importance_width, importance_blocks, importance_heads, importance_hidden: the transformer that predicts causal
            importances from the residual stream before `first_layer`.
        batch, sequence: rows and tokens of a step's batch, over all ranks.
        steps: steps of the run; the schedules depend on it.
        faithfulness, minimality, frequency, stochastic, adversarial: the coefficients of the five terms.
        p_start, p_end, eps: importance minimality sums (importance + eps)^p; p falls linearly.
        sites_per_chunk, samples: sites of a stochastic forward, and forwards per chunk.
        ascents: ascents of the persistent sources before each step; one more follows the backward pass.
        source_rate, source_warmup: their learning rate, and the share of the run over which it rises from 0.
        component_rate, importance_rate: learning rates at step 0 if `batch` is `reference_batch`.
        final_rate: the share of these rates that remains at the last step.
        gradient_norm: the norm to which the gradient of all components together is clipped.
        reference_batch: the batch for which the learning rates are stated.
        remat: whether the backward pass recomputes the layers of a masked forward.
        dtype, compute_dtype: of weights and optimizer state, and of the target and its activations.
        storage: "real", or "meta" for tensors without data.
    """

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    vocabulary: int
    first_layer: int
    last_layer: int
    kinds: tuple[str, ...]
    components: int
    importance_width: int
    importance_blocks: int
    importance_heads: int
    importance_hidden: int
    batch: int
    sequence: int
    steps: int
    faithfulness: float
    minimality: float
    frequency: float
    stochastic: float
    adversarial: float
    p_start: float
    p_end: float
    eps: float
    sites_per_chunk: int
    samples: int
    ascents: int
    source_rate: float
    source_warmup: float
    component_rate: float
    importance_rate: float
    final_rate: float
    gradient_norm: float
    reference_batch: int
    remat: bool
    dtype: str
    compute_dtype: str
    storage: str


def configuration_of(parameters: Mapping[str, Any]) -> Configuration:
    """The configuration that the parameters name, with their own values instead of the file's.

    Raises:
        FileNotFoundError: there is no such file.
    """
    values = json.loads((_FILES / f"{parameters['configuration']}.json").read_text(encoding="utf-8"))
    values.update((field.name, parameters[field.name]) for field in fields(Configuration) if field.name in parameters)
    return Configuration(**{**values, "kinds": tuple(values["kinds"])})
