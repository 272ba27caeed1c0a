"""F-DISTILL-PREP-001: precomputed teacher answers equal the teacher's answers, and are equal in every run."""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor

from falsifiers.distill.measuring.held_out import divergence, log_probabilities
from falsifiers.distill.oracle.answers import Answer, IndependentModel, in_tolerances
from falsifiers.distill.running.further_subjects import setting_of
from falsifiers.distill.running.shown import shown
from falsifiers.distill.running.training import read_back
from falsifiers.distill.subject import Precomputing
from harness import Trial, Unobserved, propagates

_REMEMBERED = 0.05  # nats; float16 rounds a logit of up to 32 by up to 0.016


def falsify(trial: Trial[Precomputing]) -> None:
    """Compare the file's answers with those of the teacher's weights. Make the file again, also over another file."""
    parameters = trial.parameters
    with trial.subject_fault():
        path = Path(trial.subject.precompute(trial.workspace / "answers", parameters["top_k"]))
        once = path.read_bytes()
    seen: dict[bytes, int] = {}
    repeated: list[int] = []
    cosines, tempered, divergences, best, positions = [], [], [], [], 0
    errors: list[float] = []
    misremembered, rests = [], []
    model = IndependentModel(parameters, trial.device)
    for step in range(1, parameters["steps"] + 1):
        with trial.subject_fault():
            inputs, _ = trial.subject.batch(step)
            if not inputs.numel():
                raise ValueError(f"the batch of step {step} is empty")
            online = trial.subject.teacher_logits(inputs)
            weights = shown(trial.subject, "teacher_weights")
            cached = trial.subject.cached_logits(path, step)
            if cached.shape != online.shape:
                raise ValueError(
                    f"cached logits of shape {tuple(cached.shape)}, the teacher's are {tuple(online.shape)}"
                )
        positions += inputs.numel()
        if seen.setdefault(inputs.cpu().numpy().tobytes(), step) != step:
            repeated.append(step)
        for row, cached_row in enumerate(cached.to(online.device)):  # by rows, because float64 is large
            online_row, truth = online[row : row + 1], _answer(model, weights, inputs[row : row + 1])
            errors.append(in_tolerances(online_row, truth, parameters["dtype"]))
            true_row = online_row[0] if isinstance(truth, Unobserved) or truth is None else truth.logits[0]
            cosines.append(_cosine(cached_row, true_row, 1.0))
            tempered.append(_cosine(cached_row, true_row, parameters["temperature"]))
            divergences.append(divergence(true_row, cached_row, 1.0).item())
            best.append(_divergence_of_even_rest(true_row, parameters["top_k"]))
            share, rest = _parts(cached_row, true_row, parameters["top_k"])
            misremembered.append(share)
            rests.append(rest)
    read_back(trial, parameters["steps"] if divergences else 0)
    trial.measure(
        answered_beyond=[step for step in (parameters["steps"] + 1,) if _answers(trial, path, step)],
        cosine_distance=1 - fmean(cosines),
        cosine_distance_at_temperature=1 - fmean(tempered),
        divergence=fmean(divergences),
        divergence_of_even_rest=fmean(best),
        teacher_error=_largest(errors),
        misremembered=fmean(misremembered),
        rest_error=max(fmean(rests), _rest_error_of_one(trial)),
        repeated_batches=repeated,
        bytes_a_position=len(once) / positions,
        unlike=[name for name, content in _made_again(trial).items() if content != once],
        digest=hashlib.sha256(once).hexdigest(),
    )


def _answers(trial: Trial[Precomputing], path: Path, step: int) -> bool:
    """Whether the file answers for the batch of a step that no run makes."""
    with trial.subject_fault():
        try:
            trial.subject.cached_logits(path, step)
        except Exception:  # a refusal of any kind
            return False
        return True


@propagates
def _answer(model: IndependentModel, weights: Mapping[str, Tensor], inputs: Tensor) -> Answer | None:
    return model.answer(weights, inputs)


def _largest(errors: list[float]) -> float:
    """The largest error; hidden if one is hidden."""
    hidden = [error for error in errors if isinstance(error, Unobserved)]
    return hidden[0] if hidden else max(errors)


def _cosine(first: Tensor, second: Tensor, temperature: float) -> float:
    """The cosine of two rows' probabilities at a temperature, in float64, averaged over the positions."""
    probabilities = [(logits.double() / temperature).softmax(dim=-1) for logits in (first, second)]
    return float(torch.cosine_similarity(*probabilities, dim=-1).mean())


def _parts(cached: Tensor, expected: Tensor, top_k: int) -> tuple[float, float]:
    """The errors of the two parts of a cache's answers [positions, vocabulary].

    Returns: the share of the teacher's largest logits whose log-probability is off by more than `_REMEMBERED`; and the
    error of the log-probability of all other tokens together, averaged over the positions.
    """
    cached_log, truth = log_probabilities(cached), log_probabilities(expected)
    kept = truth.topk(min(top_k, truth.shape[-1]), dim=-1).indices
    wrong = (cached_log.gather(-1, kept) - truth.gather(-1, kept)).abs() > _REMEMBERED
    if top_k >= truth.shape[-1]:
        return float(wrong.double().mean()), 0.0
    rests = [log_p.scatter(-1, kept, -math.inf).logsumexp(dim=-1) for log_p in (cached_log, truth)]
    return float(wrong.double().mean()), float((rests[0] - rests[1]).abs().mean())


def _rest_error_of_one(trial: Trial[Precomputing]) -> float:
    """The error of the log-probability of the other tokens in one row, if all logits but one are kept."""
    with trial.subject_fault():
        subject = type(trial.subject)(setting_of(trial, "all-but-one", steps=1, batch=1))
        online = subject.teacher_logits(subject.batch(1)[0])
        kept = online.shape[-1] - 1
        cached = subject.cached_logits(Path(subject.precompute(trial.workspace / "all-but-one-answers", kept)), 1)
        return _parts(cached[0].to(online.device), online[0], kept)[1]


def _divergence_of_even_rest(logits: Tensor, top_k: int) -> float:
    """The divergence, in float64, of a cache with the exact largest probabilities and the exact sum of the others.

    Such a cache does best if it spreads that sum evenly.
    """
    if top_k >= logits.shape[-1]:
        return 0.0
    log_p = log_probabilities(logits)
    rest = log_p.topk(log_p.shape[-1] - top_k, dim=-1, largest=False).values
    even = rest.logsumexp(dim=-1, keepdim=True) - math.log(rest.shape[-1])
    return float((rest.exp() * (rest - even)).sum(dim=-1).mean())


def _made_again(trial: Trial[Precomputing]) -> dict[str, bytes]:
    """The bytes of files that should all equal the first file, by the way they were made."""
    own = setting_of(trial, "again")
    top_k = trial.parameters["top_k"]
    others = {
        "over that of another teacher": replace(
            own, parameters={**own.parameters, "teacher_seed": own.parameters["teacher_seed"] + 1, "teacher_steps": 1}
        ),
        "over that of other text": replace(own, seed=own.seed + 1),
        "over that of more steps": replace(own, parameters={**own.parameters, "steps": own.parameters["steps"] + 1}),
        "over that of fewer logits": own,
    }
    kind = type(trial.subject)
    files = {}
    with trial.subject_fault():
        files["by a fresh subject"] = Path(kind(own).precompute(trial.workspace / "again", top_k))
        for number, (name, setting) in enumerate(others.items()):
            place = trial.workspace / f"over-{number}"
            kind(setting).precompute(place, top_k - 1 if setting is own else top_k)
            files[name] = Path(trial.subject.precompute(place, top_k))
        return {name: file.read_bytes() for name, file in files.items()}
