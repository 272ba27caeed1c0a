"""F-GB10-TABLE-CONSIST-001: the changelog's figures agree with one another. (They do not.)"""

from __future__ import annotations

from falsifiers.nanochat.subject import Changelog
from harness import Trial


def falsify(trial: Trial[Changelog]) -> None:
    """Compute each published figure from the others."""
    with trial.subject_fault():
        said = trial.subject.figures()
    current, liger, triton = (said["tokens_per_second"][name] for name in ("current", "liger", "triton"))
    before, after = said["megabytes"]["current"], said["megabytes"]["liger"]
    gains = [
        abs(fast / slow - stated) for (fast, slow), stated in zip(said["gemm_tflops"], said["gemm_gains"], strict=True)
    ]
    speedups = {name: rate / current for name, rate in said["tokens_per_second"].items()}
    trial.measure(
        speedup_errors=[abs(speedups[name] - stated) for name, stated in said["speedups"].items()],
        gemm_gain_errors=gains,
        memory_saved=(before - after) / before,
        memory_saved_over_stated=(before - after) / before / said["memory_saved"],
        achieved_over_peak=max(slow for _, slow in said["gemm_tflops"]) / said["peak_tflops"],
        split_percent=sum(said["split_percent"]),
        alias_ratio=triton / liger,
        expected_gain=said["peak_nvfp4_tflops"] / said["peak_tflops"],
        percent_of_h100=100
        * max(said["tokens_per_second"].values())
        * trial.parameters["flops_per_token"]
        / (said["peak_h100_tflops"] * 1e12),
    )
    trial.resolve(device="cpu")
