"""F-GB10-LIGER-GRAPHBREAK-001: Liger's fused loss breaks a compiled graph once; with captured scalars it does not."""

from collections.abc import Mapping
from typing import Any

import torch
from torch._dynamo.utils import counters

from falsifiers.nanochat.fresh_process import printed
from falsifiers.nanochat.subject import MaybeCompiled
from harness import NotMeasured, Trial

_SECONDS = 50.0
"""The time for both processes."""


def falsify(trial: Trial[MaybeCompiled]) -> None:
    """Count the reasons for breaks in a step of the compiled loss, by default and with captured scalars.

    Recompilation repeats the reasons of a frame, so each is counted once.

    Raises:
        NotMeasured: `.item()` breaks no graph even without the subject's variables.
    """
    breaks, graphs = {}, {}
    for captured in (False, True):
        torch._dynamo.reset()
        counters.clear()
        with trial.subject_fault(), torch._dynamo.config.patch(capture_scalar_outputs=captured):
            _step(trial)
        breaks[captured] = dict(counters["graph_break"])
        graphs[captured] = int(counters["stats"]["unique_graphs"])
    trial.measure(
        breaks=len(breaks[False]),
        breaks_at_item=sum("item" in reason.lower() for reason in breaks[False]),
        breaks_with_scalars=len(breaks[True]),
        graphs=graphs[False],
        graphs_with_scalars=graphs[True],
        reasons="\n".join([*breaks[False], *breaks[True]])[:3000],
    )
    if not _in_process({})["breaks"]:
        raise NotMeasured("in a process without variables of torch, `.item()` breaks no graph")
    with trial.subject_fault():
        counts = _in_process(dict(trial.subject.environment()))
    trial.measure(breaks_with_variable=len(counts["breaks"]), graphs_with_variable=counts["graphs"])
    trial.resolve(device=torch.device(trial.device).type)


def _in_process(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the counts of a process with these variables; without compilation there is no break and no graph."""
    counts: dict[str, Any] = printed(
        "falsifiers.nanochat.captured_scalars",
        environment=environment, unset=("TORCHDYNAMO_", "TORCH_COMPILE_"), seconds=_SECONDS,
    )  # fmt: skip
    return counts


def _step(trial: Trial[MaybeCompiled]) -> None:
    """Make one call of the compiled loss, and its gradients."""
    rows, width, vocabulary = (trial.parameters[name] for name in ("rows", "width", "vocabulary"))
    generator = torch.Generator().manual_seed(trial.seed)
    hidden, weight = (
        torch.randn(size, width, generator=generator).to(trial.device).requires_grad_() for size in (rows, vocabulary)
    )
    targets = torch.randint(vocabulary, (rows,), generator=generator).to(trial.device)
    trial.subject.compiled()(hidden, weight, targets).backward()
