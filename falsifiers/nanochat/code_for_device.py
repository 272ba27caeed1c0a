"""F-GB10-ARCHLIST-001: a GB10 runs machine code for sm_120, although no list names sm_121a."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.nanochat.device_subjects import CodeChoice
from falsifiers.nanochat.oracle.code_choice import chosen
from harness import NotMeasured, Trial
from harness.machine import timebox, toolchain

_CAPABILITIES = ["7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1"]
_LETTERS = ["", "a", "f"]
_PTX = """.version 8.0
.target {target}
.address_size 64
.visible .entry increase(.param .u64 values) {{
    .reg .u64 %at<3>; .reg .u32 %thread; .reg .f32 %value;
    ld.param.u64 %at0, [values];
    cvta.to.global.u64 %at0, %at0;
    mov.u32 %thread, %tid.x;
    mul.wide.u32 %at1, %thread, 4;
    add.u64 %at2, %at0, %at1;
    ld.global.f32 %value, [%at2];
    add.f32 %value, %value, 0f3F800000;
    st.global.f32 [%at2], %value;
    ret;
}}
"""
"""Adds one to one number per thread."""


def falsify(trial: Trial[CodeChoice]) -> None:
    """Ask about random and recorded lists; on a GPU, let the driver load real code for this GPU and for others."""
    architectures = [
        f"{form}_{capability.replace('.', '')}{letter}"
        for form in ("sm", "compute")
        for capability in _CAPABILITIES
        for letter in _LETTERS
        if not letter or float(capability) >= (9.0 if letter == "a" else 10.0)
    ]

    def check(case: Mapping[str, Any]) -> dict[str, float]:
        right = chosen(case["architectures"], *map(int, case["capability"].split(".")))
        with trial.subject_fault():
            return {"wrong": float(trial.subject.how(case["architectures"], case["capability"]) != right)}

    drawn = st.fixed_dictionaries({
        "architectures": st.lists(st.sampled_from(architectures), min_size=1, max_size=6),
        "capability": st.sampled_from(_CAPABILITIES),
    })  # fmt: skip
    first = [{"architectures": ["sm_120", "compute_120"], "capability": trial.parameters["capability"]}]
    first += [
        {"architectures": [architecture], "capability": capability}
        for architecture in architectures
        for capability in _CAPABILITIES
    ]
    trial.measure(cases=trial.search(drawn, check, examples=trial.parameters["cases"], first=first))
    answers = []
    for listed in trial.parameters["recorded_lists"]:
        with trial.subject_fault():
            answers.append(trial.subject.how(listed.split(), trial.parameters["capability"]))
    trial.measure(answers=answers)
    if torch.device(trial.device).type != "cuda":
        trial.resolve(device="cpu")
        return
    _load(trial)


def _load(trial: Trial[CodeChoice]) -> None:
    """Compile for each target, load and run the code, and compare with the subject's prediction for this GPU."""
    major, minor = torch.cuda.get_device_capability()
    foretold_wrongly, sums, loads = [], [], 0
    values = torch.ones(256, device="cuda")
    for target in trial.parameters["targets"]:
        code = _compiled(target, trial.workspace)
        with trial.subject_fault():
            foretold = trial.subject.how([target], f"{major}.{minor}") != "not at all"
        result = _run(code, values.fill_(1.0))
        loads += result is not None
        if foretold != (result is not None):
            foretold_wrongly.append(target)
        if result is not None:
            sums.append(result)
    trial.measure(loads=loads, foretold_wrongly=foretold_wrongly, results=sums)
    listed = torch.cuda.get_arch_list()
    trial.measure(listed=len(listed), listed_for_gb10=of_capability(listed, trial.parameters["capability"]))
    trial.resolve(device=values.device.type)


def of_capability(architectures: list[str], capability: str) -> list[str]:
    """Return the architectures of this compute capability, with any suffix."""
    number = capability.replace(".", "")
    return [architecture for architecture in architectures if architecture.partition("_")[2].rstrip("af") == number]


def _compiled(target: str, folder: Path) -> bytes:
    """Return machine code for an "sm_" target; for a "compute_" target PTX, which ends with a zero byte."""
    if target.startswith("compute_"):
        return _PTX.format(target=target.replace("compute_", "sm_")).encode() + b"\0"
    known = [tool for tool in toolchain.ptxas() if target in tool.details.get("targets", ())]
    if not known:
        raise NotMeasured(f"no ptxas of this machine knows {target}")
    source, image = folder / "increase.ptx", folder / f"{target}.cubin"
    source.write_text(_PTX.format(target="sm_80"))
    answer = timebox.run([str(known[-1].path), f"--gpu-name={target}", str(source), "-o", str(image)], 60)
    if answer.value is None:
        raise NotMeasured(f"{known[-1].path} makes no code for {target}: {answer.reason}")
    return image.read_bytes()


def _run(code: bytes, values: Tensor) -> float | None:
    """Return the sum of 256 values that the code incremented, or None if the driver does not load it for this GPU."""
    import numpy as np
    from cuda.bindings import driver

    status, module = driver.cuModuleLoadData(code)
    if status != driver.CUresult.CUDA_SUCCESS:
        return None
    function = _call(driver.cuModuleGetFunction(module, b"increase"))
    argument = np.array([values.data_ptr()], np.uint64)
    places = np.array([argument.ctypes.data], np.uint64)
    stream = torch.cuda.current_stream().cuda_stream
    _call(driver.cuLaunchKernel(function, 1, 1, 1, 256, 1, 1, 0, stream, places.ctypes.data, 0))
    torch.cuda.synchronize()
    _call(driver.cuModuleUnload(module))
    return float(values.sum())


def _call(answer: Any) -> Any:
    """Return the values of a driver call after its status."""
    if int(answer[0]) != 0:
        raise NotMeasured(f"a call of CUDA failed: {answer[0]}")
    return answer[1] if len(answer) > 1 else None
