"""The falsifier's own evaluation on held-out text; it uses no loss code of a subject."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from falsifiers.distill.oracle.corpus import Text, draw
from falsifiers.distill.subject import Distillation
from harness import Trial, propagates

_SEED = 20_201  # seed of the held-out sequences; every trial of a claim sees the same ones


@dataclass(frozen=True)
class HeldOut:
    """Sequences that no subject trains on.

    Attributes:
        batches: inputs and labels [batch, sequence] on the trial's device.
        blind_cross_entropy: the cross entropy on these labels, in nats per token, of a guess that knows only how often
            each token occurs in the training text.
        digest: SHA-256 of the whole corpus, in hex.
    """

    batches: tuple[tuple[Tensor, Tensor], ...]
    blind_cross_entropy: float
    digest: str

    @classmethod
    def of(cls, trial: Trial[Any]) -> HeldOut:
        """Draw the parameters' `held_out_batches` of `batch` sequences of `sequence` tokens."""
        parameters = trial.parameters
        text = Text.read(parameters, trial.cache)
        drawn = [
            draw(text.held_out, (_SEED, index), parameters["batch"], parameters["sequence"])
            for index in range(parameters["held_out_batches"])
        ]
        blind = _frequencies(text).log()[torch.cat([labels.flatten() for _, labels in drawn])]
        batches = tuple((inputs.to(trial.device), labels.to(trial.device)) for inputs, labels in drawn)
        return cls(batches, -blind.mean().item(), text.digest)

    @property
    def first_sequence(self) -> Tensor:
        """The token ids [1, sequence] of one held-out sequence."""
        return self.batches[0][0][:1]


@dataclass(frozen=True)
class Evaluation:
    """The losses of a student on held-out text, in nats per token.

    Attributes:
        loss: `alpha * cross_entropy + (1 - alpha) * T^2 * kl`.
        kl: KL(teacher || student), both at the temperature T.
        blind_kl: the divergence of the best guess that ignores its input, the teacher's mean distribution: the mean of
            KL(teacher at a position || teacher's mean). It does not depend on the student.
        misplaced_kl: KL against the teacher's answer to another sequence of the batch. It is larger than `kl` if the
            student uses its input, and not if it only knows how often tokens occur.
        cross_entropy, teacher_cross_entropy: on the next token, at temperature 1.
        blind_cross_entropy, corpus_digest: of the text, as in `HeldOut`.
        teacher_logits: the teacher's logits [1, sequence, vocabulary] on one held-out sequence.
    """

    loss: float
    kl: float
    blind_kl: float
    misplaced_kl: float
    cross_entropy: float
    teacher_cross_entropy: float
    blind_cross_entropy: float
    corpus_digest: str
    teacher_logits: Tensor


@propagates
def evaluate(trial: Trial[Distillation], held_out: HeldOut) -> Evaluation:
    """Evaluate the trial's student against its teacher. Errors in their forward passes are the subject's fault."""
    alpha, temperature = trial.parameters["alpha"], trial.parameters["temperature"]
    scores, means = [], []
    first: list[Tensor] = []
    for inputs, labels in held_out.batches:
        with trial.subject_fault():
            teacher = _checked(trial.subject.teacher_logits(inputs), inputs)
            student = _checked(trial.subject.student_logits(inputs), inputs, like=teacher)
        first.append(teacher[:1]) if not first else None
        # Row by row: a float64 copy of a whole batch of logits would be gigabytes at a vocabulary of 151,936.
        misplaced = teacher.roll(1, dims=0)
        for of_teacher, of_another, of_student, row_labels in zip(teacher, misplaced, student, labels, strict=True):
            probabilities = log_probabilities(of_teacher, temperature).exp()
            means.append(probabilities.mean(dim=0))
            scores.append(
                torch.stack(
                    [
                        divergence(of_teacher, of_student, temperature),
                        torch.special.entr(probabilities).sum(dim=-1).mean(),
                        divergence(of_another, of_student, temperature),
                        surprise(of_student, row_labels),
                        surprise(of_teacher, row_labels),
                    ]
                )
            )
    kl, entropy, misplaced_kl, cross_entropy, teacher_cross_entropy = torch.stack(scores).mean(dim=0).tolist()
    blind_kl = torch.special.entr(torch.stack(means).mean(dim=0)).sum().item() - entropy
    loss = alpha * cross_entropy + (1.0 - alpha) * temperature**2 * kl
    return Evaluation(
        loss,
        kl,
        blind_kl,
        misplaced_kl,
        cross_entropy,
        teacher_cross_entropy,
        held_out.blind_cross_entropy,
        held_out.digest,
        first[0],
    )


@propagates
def lookahead(trial: Trial[Distillation], tokens: Tensor) -> float:
    """The largest change of logits on the first half of tokens [batch, sequence] if the second changes; 0 if causal."""
    half = tokens.shape[1] // 2
    other = tokens.clone()
    other[:, half:] = tokens[:, half:].flip(1)
    with trial.subject_fault():
        first, second = trial.subject.student_logits(tokens), trial.subject.student_logits(other)
    return float((first[:, :half] - second[:, :half]).abs().max())


def _frequencies(text: Text) -> Tensor:
    """The relative frequency of each token in the training text, with one added to each count: float64 [vocabulary]."""
    size = 1 + int(max(block.max() for block in (*text.training, *text.held_out)))
    counts = torch.ones(size, dtype=torch.float64)
    for block in text.training:
        counts += torch.from_numpy(np.bincount(block, minlength=size))
    return counts / counts.sum()


def log_probabilities(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """`log softmax(logits / temperature)` over the last dimension, in float64."""
    scaled = logits.double() / temperature
    return scaled - scaled.logsumexp(dim=-1, keepdim=True)


def divergence(teacher: Tensor, student: Tensor, temperature: float) -> Tensor:
    """KL(teacher || student) of two logits [..., vocabulary] at a temperature: a float64 scalar, mean over the rest."""
    log_p, log_q = log_probabilities(teacher, temperature), log_probabilities(student, temperature)
    return (log_p.exp() * (log_p - log_q)).sum(dim=-1).mean()


def surprise(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy of logits [..., vocabulary] on labels [...]: a float64 scalar, mean over all positions."""
    return -log_probabilities(logits).gather(-1, labels.unsqueeze(-1)).mean()


def _checked(logits: Tensor, tokens: Tensor, like: Tensor | None = None) -> Tensor:
    """The logits, if their shape fits the tokens. Call it inside `subject_fault`."""
    if logits.shape[:-1] != tokens.shape or (like is not None and logits.shape != like.shape):
        expected: Sequence[int] = like.shape if like is not None else (*tokens.shape, -1)
        raise ValueError(f"logits of shape {tuple(logits.shape)} do not answer tokens: expected {tuple(expected)}")
    return logits.detach()
