"""F-GB10-PTXAS-001: a ptxas before 12.9 rejects sm_121a, and later ones accept it."""

import re
from collections.abc import Iterator
from pathlib import Path

from falsifiers.nanochat.device_subjects import Assembler
from falsifiers.nanochat.one_kernel import compiled
from harness import NotMeasured, Trial
from harness.machine import timebox, toolchain
from harness.machine.toolchain import Tool
from harness.tools.inspect.device_code import Form, inspect

_FIRST = (12, 9)
"""The first CUDA whose ptxas knows sm_121."""
_REJECTED = re.compile(r"Value '(sm_\w+)' is not defined for option 'gpu-name'")


def falsify(trial: Trial[Assembler]) -> None:
    """Assemble a Triton kernel with every ptxas of this machine, and compare with the subject's prediction."""
    programs = list(_programs())
    brought = [
        _version(tool) for tool in toolchain.ptxas() if tool.version and tool.details.get("found_by") == "Triton"
    ]
    if not any(version >= _FIRST for _, _, version in programs):
        raise NotMeasured("no ptxas of CUDA 12.9 or newer on this machine; Triton 3.6 and newer bring one")
    if not brought:
        raise NotMeasured("the installed Triton has no ptxas beside it")
    ptx = trial.workspace / "kernel.ptx"
    ptx.write_text(compiled(80, ptx_version=80).asm["ptx"])
    foretold_wrongly, unexplained, accepted_by_old, rejected_by_new, other_code = [], [], 0, 0, []
    for path, text, version in programs:
        for target in trial.parameters["targets"]:
            image = trial.workspace / f"{len(list(trial.workspace.iterdir()))}.cubin"
            with trial.subject_fault():
                foretold = trial.subject.accepts(text, target)
                status, message = trial.subject.assemble(path, ptx, target, image)
                named = _REJECTED.search(message)
            assembled = image.is_file() and status == 0
            case = f"{'.'.join(map(str, version))} {target}"
            if foretold != assembled:
                foretold_wrongly.append(case)
            if (status == 0) != assembled or (not assembled and (named is None or named[1] != target)):
                unexplained.append(case)
            if assembled and _code_of(image) != [(Form.MACHINE_CODE, target.rstrip("af"))]:
                other_code.append(case)
            if target == trial.parameters["target"]:
                accepted_by_old += assembled and version < _FIRST
                rejected_by_new += not assembled and version >= _FIRST
    recorded = []
    for name, accepted in (("recorded_accepted", True), ("recorded_rejected", False)):
        for answer in trial.parameters[name]:
            version_text, *targets = answer.split(" sm_")
            for target in targets:
                with trial.subject_fault():
                    if trial.subject.accepts(version_text, f"sm_{target}") != accepted:
                        recorded.append(f"{version_text} sm_{target}")
    trial.measure(
        old_programs=sum(version < _FIRST for _, _, version in programs),
        new_programs=sum(version >= _FIRST for _, _, version in programs),
        foretold_wrongly=foretold_wrongly,
        unexplained=unexplained,
        other_code=other_code,
        accepted_by_old=accepted_by_old,
        rejected_by_new=rejected_by_new,
        recorded_wrongly=recorded,
        brought_along="{}.{}".format(*min(brought)),
    )
    trial.resolve(device="cpu")  # ptxas is a program of the host


def _code_of(image: Path) -> list[tuple[Form, str]]:
    """Return form and target of the code in a file; not every image has the suffix of the target."""
    return [(code.form, f"sm_{code.sm}") for code in inspect(image).codes]


def _programs() -> Iterator[tuple[Path, str, tuple[int, int]]]:
    """Yield path, text of `--version` and CUDA version of each ptxas."""
    for tool in toolchain.ptxas():
        answer = timebox.run([tool.path or "", "--version"], 20) if tool.version else None
        if tool.path and tool.version and answer is not None and answer.value is not None:
            yield Path(tool.path), answer.value, _version(tool)


def _version(tool: Tool) -> tuple[int, int]:
    major, minor = (tool.version or "").split(".")[:2]
    return int(major), int(minor)
