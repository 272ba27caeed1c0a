"""F-HSTU-FLOPS-001 and F-HSTU-MFU-SUBSTR-001: operations are counted by the mask, and peaks belong to the named GPU."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from hypothesis import strategies as st

from falsifiers.param_decomp.ranks import run_of_ranks
from falsifiers.recsys.oracle.hstu import mask
from falsifiers.recsys.subject import Accounts, Question
from harness import Trial

_LONGEST = 40


def falsify_operations(trial: Trial[Accounts]) -> None:
    """Count the pairs of random masks, and let each rank of the subject sum the operations of all ranks' batches.

    The formula takes half of the history's square for its triangle, so it omits half of the diagonal: one product per
    row of the history. Without causality, it assumes that other rows do not attend to targets, although they do.
    """

    def check(case: Mapping[str, Any]) -> dict[str, float]:
        counts = [
            {"length": sum(rows), "contextuals": rows[0], "targets": rows[2]} for rows in case["sequences"]
        ]  # fmt: skip
        pairs, left_out = 0.0, 0.0
        for sequence in case["sequences"]:
            pairs += _pairs(sequence, causal=case["causal"])
            left_out += sequence[1] / 2.0 if case["causal"] else (sequence[0] + sequence[1]) * sequence[2]
        factor = 4.0 * case["heads"] * case["width"] * (3.5 if case["backward"] else 1.0)
        with trial.subject_fault():
            stated = trial.subject.attention(
                case["heads"], case["width"], counts, causal=case["causal"], backward=case["backward"]
            )
        kind = "causal" if case["causal"] else "other"
        return {
            f"{kind}_errors": abs(stated - factor * (pairs - left_out)) / (factor * max(pairs, 1.0)),
            f"{kind}_left_out": left_out / max(pairs, 1.0),
        }

    sequences = st.tuples(st.integers(0, 4), st.integers(1, _LONGEST), st.integers(0, 10)).map(list)
    drawn = st.fixed_dictionaries(
        {
            "sequences": st.lists(sequences, min_size=1, max_size=4),
            "heads": st.integers(1, 8),
            "width": st.sampled_from([32, 64, 128]),
            "causal": st.booleans(),
            "backward": st.booleans(),
        }
    )
    first = [
        {"sequences": [[c, 20, 10]], "heads": 4, "width": 128, "causal": causal, "backward": causal}
        for c in (0, 4) for causal in (True, False)
    ]  # fmt: skip
    trial.measure(cases=trial.search(drawn, check, examples=trial.parameters["cases"], first=first))
    trial.measure(sum_errors=_sum_errors(trial))
    trial.resolve(device="cpu")


def _sum_errors(trial: Trial[Accounts]) -> list[float]:
    """The error of each rank's sum against a sum that counts each batch once, for each parallelism."""
    ranks: int = trial.parameters["ranks"]
    generator = torch.Generator().manual_seed(trial.seed)
    cases, right = [], []
    for tensor_parallel in (size for size in (1, 2, 4, 8) if ranks % size == 0):
        batches = torch.randint(1, 1000, (ranks // tensor_parallel,), generator=generator).double().tolist()
        cases.append((tensor_parallel, [batches[rank // tensor_parallel] for rank in range(ranks)]))
        right.append(sum(batches))
    with trial.subject_fault():
        totals = run_of_ranks(ranks, partial(_totals, trial.subject, cases), "cpu", trial.workspace / "ranks")
    return [abs(total - true) / true for of_rank in totals for total, true in zip(of_rank, right, strict=True)]


def _totals(subject: Accounts, cases: Sequence[tuple[int, list[float]]], device: str) -> list[float]:
    """Run as one of the ranks: let the subject sum the operations of this rank's batch, in each case."""
    rank = dist.get_rank()
    return [float(subject.summed(stated[rank], tensor_parallel)) for tensor_parallel, stated in cases]


def falsify_peaks(trial: Trial[Accounts]) -> None:
    """Ask for the peaks of the named GPUs, and for the utilisation of the published run."""
    run = trial.parameters
    with trial.subject_fault():
        errors = [abs(trial.subject.peak(name) - peak) for name, peak in zip(run["gpus"], run["peaks"], strict=True)]
        reached = trial.subject.utilisation(
            run["tflops_per_rank"] * 1e12 * run["ranks"], run["milliseconds"] / 1e3, run["gpu"], run["ranks"]
        )
    trial.measure(peak_errors=errors, utilisation_error=abs(reached - run["per_cent"]))
    trial.resolve(device="cpu")


def _pairs(sequence: list[int], *, causal: bool) -> float:
    """Return the number of keys that all rows of a sequence of contextuals, history and targets attend to."""
    contextuals, history, targets = sequence
    length = contextuals + history + targets
    empty, offsets = torch.empty(0, 1, 1), torch.tensor([0, length])
    question = Question(
        empty, empty, empty, empty, offsets, length, length, 1.0, causal, torch.tensor([targets]), 1,
        torch.tensor([contextuals]), 0, 0,
    )  # fmt: skip
    return float(mask(question, 0, length).sum())
