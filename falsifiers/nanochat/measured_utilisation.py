"""F-GB10-MFU-001: the reported share of the peak refers to the peak that this device reaches in that dtype."""

import math
import statistics
import time
from collections.abc import Mapping
from typing import Any

import torch
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from falsifiers.nanochat.device_subjects import Utilisation
from falsifiers.nanochat.reference.model import Gpt, Shape
from falsifiers.nanochat.subject import read_back
from harness import Trial
from harness.tools.roofline.roofs import Sizes, measured

_DEVICES = ["NVIDIA GB10", "NVIDIA H200", "NVIDIA H100 80GB HBM3", "NVIDIA GeForce RTX 4090", "a GB10-like CPU"]
_DTYPES = ["float32", "bfloat16", "float16", "float8_e4m3fn"]


def falsify(trial: Trial[Utilisation]) -> None:
    """Compare the subject's share with the quotient, for random devices and for real steps on this one."""

    def check(case: Mapping[str, Any]) -> dict[str, Any]:
        achieved, peaks = case["teraflops"] * 1e12, {name: peak * 1e12 for name, peak in case["peaks"].items()}
        share = achieved / peaks[case["dtype"]] if case["dtype"] in peaks else math.inf
        with trial.subject_fault():
            stated = trial.subject.mfu(
                achieved * case["seconds"], case["seconds"], case["dtype"], case["device"], peaks
            )
        if stated is None or share > 1.0:  # an answer to an invalid question counts as an error of 1
            return {"errors": 0.0 if stated is None and share > 1.0 else 1.0}
        return {"errors": abs(stated / share - 1.0)}

    positive = st.floats(0.01, 2000.0)
    powers_of_two = st.integers(-10, 6).map(lambda power: 2.0**power)  # multiplied and divided without rounding
    drawn = st.fixed_dictionaries({
        "teraflops": positive, "seconds": powers_of_two, "dtype": st.sampled_from(_DTYPES),
        "device": st.sampled_from(_DEVICES),
        "peaks": st.dictionaries(st.sampled_from(_DTYPES), positive, min_size=1),
    })  # fmt: skip
    trial.measure(cases=trial.search(drawn, check, examples=trial.parameters["cases"], first=_known()))

    if not trial.parameters["steps"]:
        return
    kind = torch.device(trial.device).type
    parameters, dtype = trial.parameters, trial.parameters["dtype"]
    roofs = measured(kind, Sizes(parameters["rounds"], parameters["buffer_mib"] << 20, tuple(parameters["widths"])))
    peaks = {
        name.removeprefix("product "): roof.peak for name, roof in roofs.roofs.items() if name.startswith("product")
    }
    operations, seconds, losses = _steps(trial)
    with trial.subject_fault():
        stated = trial.subject.mfu(operations, seconds, dtype, str(roofs.device["name"]), peaks)
    right = operations / seconds / peaks[dtype]
    trial.measure(
        achieved=operations / seconds,
        peak=peaks[dtype],
        share=right,
        told_over_right=-1.0 if stated is None else stated / right,
        losses=losses,
    )
    trial.resolve(steps=len(losses) - 1)  # the first step counted operations


def _known() -> list[dict[str, Any]]:
    """Return the changelog's figures of a GB10, and a peak below the reached rate."""
    gb10 = {"device": "NVIDIA GB10", "dtype": "bfloat16", "seconds": 1.0}
    reached = {"bfloat16": 98.0, "float8_e4m3fn": 200.0, "float32": 31.0}
    return [
        {**gb10, "teraflops": 59.19, "peaks": reached},
        {**gb10, "teraflops": 59.19, "peaks": {"float32": 31.0, "bfloat16": 98.0}},
        {**gb10, "teraflops": 59.19, "peaks": {"bfloat16": 52.8}},  # 112 %
        {**gb10, "teraflops": 98.0, "peaks": {"bfloat16": 98.0}},
        {**gb10, "device": "NVIDIA H200", "teraflops": 400.0, "peaks": {"bfloat16": 750.0}},
        {**gb10, "teraflops": 59.19, "peaks": {"float32": 31.0}},
    ]


def _steps(trial: Trial[Utilisation]) -> tuple[float, float, list[float]]:
    """Return operations and median seconds of a step of nanochat, and the losses."""
    parameters = trial.parameters
    shape = Shape(**{name: parameters[name] for name in ("layers", "width", "heads", "vocabulary", "sequence")})
    torch.manual_seed(trial.seed)
    with torch.device(trial.device):
        model = Gpt(shape).to(getattr(torch, parameters["dtype"]))
        tokens = torch.randint(shape.vocabulary, (parameters["rows"], shape.sequence + 1))
    read_back(trial, model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    losses, samples = [], []

    def step() -> None:
        optimizer.zero_grad()
        loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))  # waits for the forward pass

    with FlopCounterMode(display=False) as counter:
        step()
    for _ in range(parameters["steps"]):
        started = time.perf_counter()
        step()
        if tokens.is_cuda:
            torch.cuda.synchronize()
        samples.append(time.perf_counter() - started)
    return float(counter.get_total_flops()), statistics.median(samples), losses
