"""Relations that need a GPU: streams, waiting, graphs, and the current device."""

from __future__ import annotations

import torch

from harness.authoring.tensor_function.adversary import Adversary
from harness.authoring.tensor_function.drawing import Case

__all__ = ["graph_replay", "no_host_wait", "other_device", "other_stream"]


def other_stream(adversary: Adversary) -> None:
    """On a side stream that still sleeps, and beside a call on another stream, the answer is right."""

    def check(case: Case) -> list[str]:
        return adversary.wrong(adversary.call_for(case, context="other stream"), case.dtype)

    for number in range(2):
        adversary.examine("other_stream", adversary.case(640 + number), check, "a side stream that sleeps")

    def beside(case: Case) -> list[str]:
        return adversary.wrong(adversary.call_for(case, context="two streams"), case.dtype)

    for case in (adversary.case(642), adversary.whole(643)):
        adversary.examine("other_stream", case, beside, "other inputs on a second stream at the same time")


def no_host_wait(adversary: Adversary) -> None:
    """It returns before the work before it on its stream has ended, if that is declared."""
    if adversary.function.waits:
        adversary.findings.inapplicable["no_host_wait"] = "it is not declared"
        return
    adversary.findings.tried["no_host_wait"] += 1  # what it finds is a complaint of each call of `other_stream`


def graph_replay(adversary: Adversary) -> None:
    """A CUDA graph that captured it gives the right outputs for other contents, or capturing raises."""

    def check(case: Case) -> list[str]:
        return adversary.wrong(adversary.call_for(case, gradients=False, context="graph"), case.dtype, refusable=True)

    adversary.examine("graph_replay", adversary.case(660), check, "a replayed CUDA graph")


def other_device(adversary: Adversary) -> None:
    """While another GPU is the current one, the answer is right."""
    if torch.cuda.device_count() < 2:
        adversary.findings.inapplicable["other_device"] = "this process sees one GPU"
        return

    def check(case: Case) -> list[str]:
        return adversary.wrong(adversary.call_for(case, context="other device"), case.dtype)

    adversary.examine("other_device", adversary.case(680), check, "another current device")
