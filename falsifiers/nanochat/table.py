"""F-GB10-TABLE-CONSIST-001: the changelog's figures agree with one another. (They do not.)"""

from falsifiers.nanochat.subject import Changelog
from harness import Trial


def falsify(trial: Trial[Changelog]) -> None:
    """Compute each published figure from the others."""
    with trial.subject_fault():
        figures = trial.subject.figures()
    current, liger, triton = (figures["tokens_per_second"][name] for name in ("current", "liger", "triton"))
    before, after = figures["megabytes"]["current"], figures["megabytes"]["liger"]
    gains = [
        abs(fast / slow - stated)
        for (fast, slow), stated in zip(figures["gemm_tflops"], figures["gemm_gains"], strict=True)
    ]
    speedups = {name: rate / current for name, rate in figures["tokens_per_second"].items()}
    trial.measure(
        speedup_errors=[abs(speedups[name] - stated) for name, stated in figures["speedups"].items()],
        gemm_gain_errors=gains,
        memory_saved=(before - after) / before,
        memory_saved_over_stated=(before - after) / before / figures["memory_saved"],
        achieved_over_peak=max(slow for _, slow in figures["gemm_tflops"]) / figures["peak_tflops"],
        split_percent=sum(figures["split_percent"]),
        alias_ratio=triton / liger,
        expected_gain=figures["peak_nvfp4_tflops"] / figures["peak_tflops"],
        percent_of_h100=100
        * max(figures["tokens_per_second"].values())
        * trial.parameters["flops_per_token"]
        / (figures["peak_h100_tflops"] * 1e12),
    )
    trial.resolve(device="cpu")
