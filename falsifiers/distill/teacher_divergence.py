"""F-DISTILL-TEACHER-DIV-001: the teacher differs from the student's initial weights, and knows more."""

from collections.abc import Mapping

from torch import Tensor

from falsifiers.distill.measuring.answers import measure_answers
from falsifiers.distill.measuring.held_out import HeldOut, evaluate
from falsifiers.distill.measuring.weight_comparison import same_tensor, snapshot
from falsifiers.distill.running.shown import shown
from falsifiers.distill.running.training import train
from falsifiers.distill.subject import Distillation
from harness import Trial, propagates


def falsify(trial: Trial[Distillation]) -> None:
    """Compare both models on held-out text before the run, and again after a few steps of it."""
    held_out = HeldOut.of(trial)
    before = evaluate(trial, held_out)
    with trial.subject_fault():
        tokens = held_out.first_sequence
        apart = (trial.subject.teacher_logits(tokens) - trial.subject.student_logits(tokens)).abs().max()
        first = snapshot(shown(trial.subject, "teacher_weights"))
    train(trial)
    after = evaluate(trial, held_out)
    with trial.subject_fault():
        last = snapshot(shown(trial.subject, "teacher_weights"))
    measure_answers(trial, held_out)
    trial.measure(
        initial_kl=before.kl,
        final_kl=after.kl,
        logits_apart=apart,
        teacher_moved=_moved(first, last),
        teacher_cross_entropy=before.teacher_cross_entropy,
        student_cross_entropy=before.cross_entropy,
        blind_cross_entropy=before.blind_cross_entropy,
        final_teacher_cross_entropy=after.teacher_cross_entropy,
    )


@propagates
def _moved(first: Mapping[str, Tensor], last: Mapping[str, Tensor]) -> list[str]:
    """The teacher's tensors that changed."""
    both = first.keys() & last.keys()
    return sorted((first.keys() ^ last.keys()) | {name for name in both if not same_tensor(first[name], last[name])})
