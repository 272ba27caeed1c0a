"""F-GB10-AUTOTUNE-SMEM-001: configurations beyond the shared memory are skipped, and the fastest right one wins."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor
from triton.runtime.errors import OutOfResources
from triton.testing import do_bench

from falsifiers.nanochat.device_subjects import Candidate, Tuner
from falsifiers.nanochat.tuned_product import product, shared_bytes
from harness import Trial

_NAMES = ("rows", "columns", "depth", "stages")
_TOLERANCE = 1e-2
_FAULTS = ("", "", "", "one number", "a block", "not finite", "crash")


class _Crash(Exception):
    """An error unrelated to memory, which the tuner must raise."""


def falsify(trial: Trial[Tuner]) -> None:
    """Let the subject choose among random configurations, and among real ones of a Triton kernel."""
    limit = trial.parameters["shared_bytes"]
    exact = torch.arange(64.0).view(8, 8)

    def check(case: Mapping[str, Any]) -> dict[str, Any]:
        table = {_key(entry): entry for entry in case["candidates"]}

        def run(candidate: Candidate) -> tuple[float, Tensor]:
            entry = table[_key(candidate)]
            if _needed(entry) > limit:
                raise OutOfResources(_needed(entry), limit, "shared memory")
            if entry["fault"] == "crash":
                raise _Crash
            return entry["seconds"], _damaged(exact, entry["fault"])

        candidates = [{name: entry[name] for name in _NAMES} for entry in table.values()]
        fitting = [entry for entry in table.values() if _needed(entry) <= limit and not entry["fault"]]
        least = min((entry["seconds"] for entry in fitting), default=None)
        crashes = any(entry["fault"] == "crash" and _needed(entry) <= limit for entry in table.values())
        with trial.subject_fault(), contextlib.suppress(_Crash):
            chosen = trial.subject.choose(candidates, run, lambda made: bool(torch.equal(made, exact)))
            if crashes:
                return {"wrong": 1.0}
        if crashes:
            return {"wrong": 0.0}
        if chosen is None or least is None:
            return {"wrong": float(chosen is not least)}
        return {"wrong": float(_key(chosen) not in {_key(entry) for entry in fitting if entry["seconds"] == least})}

    configuration = st.fixed_dictionaries({
        "rows": st.sampled_from([16, 32, 64, 128, 256]), "columns": st.sampled_from([16, 32, 64, 128, 256]),
        "depth": st.sampled_from([16, 32, 64]), "stages": st.integers(1, 8), "seconds": st.floats(1e-6, 1.0),
        "fault": st.sampled_from(_FAULTS),
    })  # fmt: skip
    drawn = st.fixed_dictionaries({"candidates": st.lists(configuration, min_size=1, max_size=6, unique_by=_key)})
    trial.measure(cases=trial.search(drawn, check, examples=trial.parameters["cases"], first=_known()))
    _real(trial, limit)


def _real(trial: Trial[Tuner], limit: int) -> None:
    """Tune the kernel. Without a GPU, code compiled for the claim's GPU states its needs, and torch multiplies."""
    candidates = [
        dict(zip(_NAMES, map(int, text.split("x")), strict=True)) for text in trial.parameters["configurations"]
    ]
    garbage = _key(candidates[0])
    on_gpu = torch.device(trial.device).type == "cuda"
    generator = torch.Generator(trial.device).manual_seed(trial.seed)
    width = trial.parameters["width"]
    left, right = (
        torch.randn(width, width, device=trial.device, generator=generator).to(torch.bfloat16) for _ in range(2)
    )
    exact = left.double() @ right.double()
    seconds: dict[tuple[int, ...], float] = {}
    skipped: set[tuple[int, ...]] = set()

    def run(candidate: Candidate) -> tuple[float, Tensor]:
        key = _key(candidate)
        try:
            if on_gpu:
                made = product(left, right, candidate)
                taken = do_bench(lambda: product(left, right, candidate), warmup=5, rep=20) * 1e-3
            else:
                needed = shared_bytes(candidate, trial.parameters["capability"])
                if needed > limit:
                    raise OutOfResources(needed, limit, "shared memory")
                made, taken = left.float() @ right.float(), 1.0 / candidate["rows"]
        except OutOfResources:
            skipped.add(key)
            raise
        if key == garbage:  # the fastest, with a wrong result
            made, taken = made.roll(1, 0), 1e-9
        seconds.setdefault(key, taken)
        return seconds[key], made

    def is_right(made: Tensor) -> bool:
        return bool((made.double() - exact).norm() <= _TOLERANCE * exact.norm())

    with trial.subject_fault():
        chosen = trial.subject.choose(candidates, run, is_right)
    right_ones = {key: taken for key, taken in seconds.items() if key != garbage}
    trial.measure(
        skipped=len(skipped),
        right_ones=len(right_ones),
        chosen_is_right=chosen is not None and _key(chosen) in right_ones,
    )
    if chosen is not None and _key(chosen) in right_ones:
        _, made = run(chosen)
        trial.measure(
            result_error=float((made.double() - exact).norm() / exact.norm()),
            slower_than_best=seconds[_key(chosen)] / min(right_ones.values()),
        )
    trial.resolve(device=left.device.type)


def _key(candidate: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(candidate[name] for name in _NAMES)


def _needed(candidate: Mapping[str, Any]) -> int:
    """Return the bytes of the blocks in flight, two bytes per number."""
    blocks = (candidate["rows"] + candidate["columns"]) * candidate["depth"] * 2
    return int(blocks * max(candidate["stages"] - 1, 1))


def _damaged(exact: Tensor, fault: str) -> Tensor:
    damaged = exact.clone()
    if fault == "one number":
        damaged[3, 3] += 1
    elif fault == "a block":
        damaged[:4, :4] = 0
    elif fault == "not finite":
        damaged[7, 7] = float("nan")
    return damaged


def _known() -> list[dict[str, Any]]:
    """Return cases for every tuner: nothing fits, nothing is right, and a fast wrong one between slower right ones."""
    small: dict[str, Any] = {"rows": 64, "columns": 64, "depth": 32, "stages": 2, "seconds": 0.1, "fault": ""}
    large = {**small, "rows": 256, "columns": 256, "depth": 64, "stages": 8, "seconds": 1e-6}
    wrong = {**small, "rows": 32, "seconds": 0.01, "fault": "a block"}
    fast = {**small, "columns": 32, "seconds": 0.05}
    crash = {**small, "depth": 16, "fault": "crash"}
    listed: Sequence[list[dict[str, Any]]] = [
        [small], [large], [wrong], [small, large], [large, small], [large, wrong], [small, wrong, fast],
        [wrong, large, fast, small], [small, fast, large], [fast, small], [small, crash], [crash, large],
    ]  # fmt: skip
    return [{"candidates": each} for each in listed]
