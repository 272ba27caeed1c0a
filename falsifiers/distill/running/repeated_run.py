"""The weights of a trainer in another process after each step, from other runs of it.

Its memory is not shown. But the weights after a step do not depend on the checkpoint interval. So the files of a run
are compared with those of a run of equal length that saves after each step.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from falsifiers.distill.measuring.weight_comparison import same_tensor
from falsifiers.distill.measuring.weight_files import Unreadable, WeightFiles, weight_files
from falsifiers.distill.running.further_subjects import further_subject
from falsifiers.distill.subject import Checkpointing
from harness import NotObserved, Trial, propagates


@dataclass(frozen=True)
class RepeatedRun:
    """A run with a checkpoint after each step. Its files stay until the trial ends."""

    subject: Checkpointing
    files: WeightFiles
    paths: Mapping[str, Path]
    """By the claim's name of the checkpoint."""

    def weights(self, step: int) -> dict[str, Tensor]:
        """The weights after a step, on the CPU.

        Raises:
            NotObserved: there is no such file, or it cannot be read.
        """
        path = self.paths.get(self.files.name(step))
        if path is None:
            raise NotObserved(f"a run that was asked for a checkpoint of each step left none of step {step}")
        try:
            return self.files.read_checkpoint(path)[0]
        except (OSError, Unreadable) as error:
            raise NotObserved(f"{path} of another run cannot be read: {error}") from error

    @propagates
    def at(self, step: int) -> Mapping[str, Tensor]:
        """As `weights`, hidden if they cannot be read."""
        return self.weights(step)

    def stands_still(self, step: int) -> bool:
        """Whether no tensor changed in this step. False for the first step, whose rate may be 0."""
        now, before = self.at(step), self.at(step - 1)
        return bool(_alike(before, now)) if isinstance(before, dict) and isinstance(now, dict) and now else False


@propagates
def repeat(trial: Trial[Checkpointing], steps: int, name: str = "repeated") -> RepeatedRun:
    """Run the trainer again for this many steps, with a checkpoint after each; hidden for a finished run."""
    with trial.subject_fault():
        subject = further_subject(trial, f"{name}-{steps}/new", checkpoint_every=1, steps=steps)
        files = weight_files(subject)
        files.checkpoints(Path(subject.directory))  # raises early if the subject shows no checkpoints
        subject.distill(on_step=lambda step, **values: None)
        paths = {called: path for path, called in files.checkpoints(Path(subject.directory)).items()}
    return RepeatedRun(subject, files, paths)


@propagates
def repeat_alike(trial: Trial[Checkpointing], steps: int) -> RepeatedRun:
    """As `repeat`; hidden if two equal runs give different weights, because then bits cannot be compared."""
    first, second = repeat(trial, steps), repeat(trial, steps, "again")
    for step in range(1, steps + 1):
        if not _alike(first.weights(step), second.weights(step)):
            raise NotObserved(f"two equal runs of the trainer leave different weights after step {step}")
    return first


def _alike(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(same_tensor(tensor, second[name]) for name, tensor in first.items())
