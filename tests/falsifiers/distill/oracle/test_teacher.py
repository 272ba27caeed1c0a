"""The oracle's teacher equals the subject's."""

from __future__ import annotations

from pathlib import Path
from pydoc_data import topics

import torch

from falsifiers.distill.oracle.corpus import Text
from falsifiers.distill.oracle.teacher import trained_teacher
from falsifiers.distill.reference import Distillation
from tests.falsifiers.distill.trials import a_setting


def test_both_train_the_same_teacher(tmp_path: Path) -> None:
    """After a few steps both are equal up to rounding, which AdamW amplifies where a gradient is nearly zero.

    One step less, or another seed, makes a difference fifty times as large. Training does not change the state of the
    random numbers.
    """
    setting = a_setting(tmp_path, corpus=topics.__file__, teacher_steps=3)
    theirs, state = Distillation(setting).teacher_weights(), torch.get_rng_state()
    text, rate = Text.read(setting.parameters, setting.cache), setting.parameters["teacher_learning_rate"]

    def apart(**other: int) -> float:
        ours = trained_teacher({**setting.parameters, **other}, text, torch.device("cpu"), setting.cache)
        assert ours.keys() == theirs.keys()
        return max(float((ours[name] - theirs[name]).abs().mean()) for name in ours) / rate

    assert apart() < 2e-3
    assert torch.equal(state, torch.get_rng_state())
    assert min(apart(teacher_steps=2), apart(teacher_seed=setting.parameters["teacher_seed"] + 1)) > 0.1
