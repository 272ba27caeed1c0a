"""Tries to refute that a function of tensors is right: the falsifier of `harness kernel check`."""

from __future__ import annotations

from typing import Any, Final

import torch._inductor.pattern_matcher  # noqa: F401 - torch.compile imports it at its first call, in two seconds

from harness.authoring.faults import NotMeasured
from harness.authoring.tensor_function.adversary import Adversary, Findings
from harness.authoring.tensor_function.call import Caller
from harness.authoring.tensor_function.catalogue import RELATIONS, try_relations
from harness.authoring.tensor_function.function import TensorFunction
from harness.authoring.tensor_function.likeness import like
from harness.authoring.tensor_function.tolerance import UnfitReference
from harness.authoring.trial import Trial
from harness.contract.entry_point import resolve
from harness.tools.kernels.paired_time import timed
from harness.tools.kernels.user_example import drawing_function

__all__ = ["WATCHED", "falsify"]

WATCHED: Final = "relations.txt"
"""The artifact with a line for each relation."""


def falsify(trial: Trial[Caller]) -> None:
    """Try every relation of the parameters, and measure the violations of each."""
    given = trial.parameters
    function = TensorFunction(
        trial.subject,
        resolve(given["against"]),
        drawing_function(resolve(given["example"]), like),
        dtypes=tuple(given["dtypes"]),
        differentiable=given["differentiable"],
        deterministic=given["deterministic"],
        waits=given["waits"],
        constants=tuple(given["constants"]),
        largest=given["largest"],
        tf32=given["tf32"],
        slack=given["slack"],
    )
    names = given["relations"]
    is_on_gpu = trial.device.startswith("cuda")
    names = [name for name in names if is_on_gpu or not RELATIONS[name].needs_gpu]
    reported: dict[str, int] = {}

    def tell(findings: Findings) -> None:
        """Measure new violations at once, since a trial may end with the first one.

        Raises:
            NotMeasured: the function accepts no dtype, for want of a GPU.
        """
        if findings.accepted == () and not is_on_gpu and findings.needs_gpu:
            hint = "a Triton kernel needs TRITON_INTERPRET=1 before the command, or a GPU: "
            raise NotMeasured(f"no GPU is used; {hint}{'; '.join(findings.refused['value'])}")
        for name, problems in findings.violations.items():
            if name in names and len(problems) > reported.get(name, 0):
                reported[name] = len(problems)
                trial.measure(**{name: list(problems)})

    guard = trial.subject_fault
    try:
        results = try_relations(function, names, device=trial.device, seed=trial.seed, guard=guard, tell=tell)
    except UnfitReference as error:
        raise NotMeasured(str(error)) from error
    violations: dict[str, Any] = {name: results.violations.get(name, []) for name in names}
    lines = []
    for name in names:
        refused = "; ".join(results.refused.get(name, []))
        is_refused = 0 < results.tried[name] == results.refusals[name]
        outcome = results.inapplicable.get(name, "refused" if is_refused else "")
        lines.append(f"{name}\t{results.tried[name]}\t{outcome}\t{refused}")
    (trial.artifacts / WATCHED).write_text("\n".join(lines) + "\n", encoding="utf-8")
    trial.measure(
        calls=results.tried["inputs_kept"],
        untried=[name for name in names if not results.tried[name] and name not in results.inapplicable],
        **violations,
    )
    if given["time"]:
        adversary = Adversary(function, device=trial.device, seed=trial.seed, guard=trial.subject_fault)
        adversary.find_dtypes()
        with trial.subject_fault():
            speed = timed(adversary, trial.subject.function)  # type: ignore[attr-defined]  # of a Host, in this process
        trial.log(f"timed {speed.case}: {speed.ratio}")
        trial.measure(time_ratio=[speed.ratio.low, speed.ratio.estimate, speed.ratio.high], untrue_times=speed.problems)
    trial.resolve(device="cuda" if is_on_gpu else "cpu")
