"""F-GB10-LIGER-GRAPHBREAK-001: Liger's fused loss breaks a compiled graph once, and not if scalars are captured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping

import torch
from torch._dynamo.utils import counters

from falsifiers.nanochat.subject import MaybeCompiled
from harness import Trial

__all__ = ["falsify"]


def falsify(trial: Trial[MaybeCompiled]) -> None:
    """Count the reasons for breaks in a step of the compiled loss, by default and with captured scalars.

    A frame that is compiled again repeats its reasons, so each is counted once.
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
    with trial.subject_fault():
        told = dict(trial.subject.environment())
    trial.measure(breaks_with_variable=len(_breaks_in(told)))
    trial.resolve(device=torch.device(trial.device).type)


def _breaks_in(environment: Mapping[str, str]) -> dict[str, int]:
    """Return the graph breaks of a process with these variables; without them, its `.item()` makes one."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TORCHDYNAMO_")}
    run = subprocess.run(
        [sys.executable, "-m", "falsifiers.nanochat.captured_scalars"],
        env={**clean, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        raise RuntimeError(f"the process ended with {run.returncode}: {run.stderr[-600:]}")
    found: dict[str, int] = json.loads(run.stdout)
    return found


def _step(trial: Trial[MaybeCompiled]) -> None:
    """Make one call of the compiled loss, and its gradients."""
    rows, width, vocabulary = (trial.parameters[name] for name in ("rows", "width", "vocabulary"))
    generator = torch.Generator().manual_seed(trial.seed)
    hidden, weight = (
        torch.randn(size, width, generator=generator).to(trial.device).requires_grad_() for size in (rows, vocabulary)
    )
    targets = torch.randint(vocabulary, (rows,), generator=generator).to(trial.device)
    trial.subject.compiled()(hidden, weight, targets).backward()
