"""Chunked losses with one known defect each, in what becomes of the chunks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import torch

from falsifiers.distill.kd.subject import IGNORED, Answer, Question
from falsifiers.distill.reference.chunked import ChunkedKdLoss

__all__ = [
    "HeadAssigned",
    "HeadSummedInHalf",
    "LastChunkLeftOut",
    "LastTokenLeftOut",
    "MeanOfChunks",
    "TailLeftOut",
    "UpstreamForgotten",
]

_ROWS = 3
"""Of a chunk, as in the reference."""
_COLUMNS = 16
"""Of a block of the vocabulary."""
_WIDER = 64
"""Of a block that no known case ends one token behind."""


class _InChunks(ChunkedKdLoss):
    """The reference's answers for each chunk, put together."""

    def answers(self, question: Question) -> Iterator[tuple[Answer, float]]:
        """The answer of each chunk, and its share of the tokens that count."""
        tokens = max(1, _tokens(question))
        for start in range(0, len(question.labels), _ROWS):
            rows = slice(start, start + _ROWS)
            piece = dataclasses.replace(
                question,
                student=question.student[rows],
                teacher=question.teacher[rows],
                labels=question.labels[rows],
            )
            yield super().__call__(piece), _tokens(piece) / tokens


def _tokens(question: Question) -> int:
    return int((question.labels != IGNORED).sum())


class LastChunkLeftOut(ChunkedKdLoss):
    """Rows after the last whole chunk have neither loss nor gradient, and still count as tokens."""

    def __call__(self, question: Question) -> Answer:
        """Ignore these rows."""
        labels = question.labels.clone()
        labels[len(labels) // _ROWS * _ROWS :] = IGNORED
        cut = dataclasses.replace(question, labels=labels)
        share = _tokens(cut) / max(1, _tokens(question))
        answer = super().__call__(cut)
        return Answer(answer.loss * share, answer.student_gradient * share, answer.head_gradient * share)


class MeanOfChunks(_InChunks):
    """Every chunk counts the same, however many of its positions are ignored."""

    def __call__(self, question: Question) -> Answer:
        """The mean of the chunks' means."""
        answers = [answer for answer, _ in self.answers(question)]
        return Answer(
            torch.stack([one.loss for one in answers]).mean(),
            torch.cat([one.student_gradient for one in answers]) / len(answers),
            torch.stack([one.head_gradient for one in answers]).mean(dim=0),
        )


class HeadSummedInHalf(_InChunks):
    """The head's gradient is summed over the chunks in the dtype of the head."""

    def __call__(self, question: Question) -> Answer:
        """Add one chunk after the other."""
        whole = super().__call__(question)
        total = torch.zeros_like(question.student_head)
        for answer, share in self.answers(question):
            total += answer.head_gradient * share
        return dataclasses.replace(whole, head_gradient=total)


class HeadAssigned(_InChunks):
    """The head's gradient is that of the last chunk: it is assigned, not added."""

    def __call__(self, question: Question) -> Answer:
        """Take the last chunk's."""
        whole = super().__call__(question)
        *_, (last, share) = self.answers(question)
        return dataclasses.replace(whole, head_gradient=last.head_gradient * share)


class TailLeftOut(ChunkedKdLoss):
    """The kernel goes over whole blocks of the vocabulary and leaves out the tokens after the last one."""

    def __call__(self, question: Question) -> Answer:
        """Cut both heads, and the labels with them."""
        vocabulary = len(question.student_head)
        whole = max(vocabulary // _COLUMNS * _COLUMNS, min(vocabulary, _COLUMNS))
        cut = dataclasses.replace(
            question,
            student_head=question.student_head[:whole],
            teacher_head=question.teacher_head[:whole],
            labels=question.labels.clamp_max(whole - 1),
        )
        answer = super().__call__(cut)
        tail = torch.zeros_like(question.student_head[whole:])
        return dataclasses.replace(answer, head_gradient=torch.cat([answer.head_gradient, tail]))


class LastTokenLeftOut(TailLeftOut):
    """The kernel ends its blocks one token early, which matters only if the last block has one token."""

    def __call__(self, question: Question) -> Answer:
        """Cut the last token off if it is alone."""
        is_alone = len(question.student_head) % _WIDER == 1
        return super().__call__(question) if is_alone else ChunkedKdLoss.__call__(self, question)


class UpstreamForgotten(ChunkedKdLoss):
    """The gradients are made in the forward pass, and the backward pass gives them away as they are."""

    def __call__(self, question: Question) -> Answer:
        """As if nothing came after the loss."""
        return super().__call__(dataclasses.replace(question, upstream=1.0))
