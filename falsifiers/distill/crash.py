"""F-DISTILL-CKPT-CRASH-001: a run that is killed and resumed ends as the run that was never killed."""

import os
import random
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path

from falsifiers.distill.measuring.saved_state import is_misnumbered, is_whole, largest_file, saved, unlike
from falsifiers.distill.measuring.weight_comparison import inspect_export, snapshot
from falsifiers.distill.measuring.weight_files import weight_files
from falsifiers.distill.running.determinism import be_deterministic
from falsifiers.distill.running.forked_run import ForkedRun, Report
from falsifiers.distill.running.further_subjects import directory_of, further_subject
from falsifiers.distill.running.training import train
from falsifiers.distill.subject import Checkpointing
from harness import Trial

_POLL_SECONDS = 0.01
_RUN = "crashing"

Blow = Callable[[int], None]
"""Called in the process of a run after each of its steps; it may kill the process."""


def falsify(trial: Trial[Checkpointing]) -> None:
    """Kill a run during a write, then at a step, then at a random moment. Compare with an undisturbed run."""
    every, steps = trial.parameters["checkpoint_every"], trial.parameters["steps"]
    chance = random.Random(trial.seed)  # noqa: S311 - chance, and no secret
    be_deterministic()

    in_write = _run(trial, _killed_in_write(trial, 2 * every), -signal.SIGXFSZ, -signal.SIGKILL)
    torn = _torn(trial)
    trial.measure(torn=torn, killed_in_write=in_write.exit_code == -signal.SIGXFSZ)
    at_step = _run(trial, _killed_at(trial, chance.randrange(3 * every + 1, 4 * every)), -signal.SIGKILL)
    trial.measure(torn=(torn := torn + _torn(trial)), lost_in_write=_lost(in_write, at_step))
    at_random = _killed_within(trial, chance.randrange(4 * every, 5 * every), chance.random())
    trial.measure(torn=(torn := torn + _torn(trial)), lost_at_step=_lost(at_step, at_random))
    last = _run(trial, None, 0)
    trial.measure(lost_at_random=_lost(at_random, last))

    in_peace = train(trial)
    with trial.subject_fault():
        live = trial.subject.student_weights()
    expected = dict(enumerate(in_peace.run.losses, start=1))
    reported = [reported for run in (in_write, at_step, at_random, last) for reported in run.steps]
    read = weight_files(trial.subject).read_export
    seen = inspect_export(Path(last.answer), live, snapshot(live), read)
    trial.measure(
        misnumbered=_misnumbered(trial),
        state_differs=_state_differs(trial),
        steps_executed=in_peace.steps,
        unequal=sorted({step for step, loss in reported if loss != expected.get(step)}),
        unmade=sorted(set(range(1, steps + 1)) - {step for step, _ in reported}),
        different=seen.different + seen.missing + seen.misshapen + seen.mistyped,
    )


def _start(trial: Trial[Checkpointing], blow: Blow | None = None) -> ForkedRun:
    """Resume the run in a new process, from the files of the previous one."""

    def work(report: Report) -> str:
        subject = further_subject(trial, _RUN)

        def on_step(step: int, **values: float) -> None:
            report(step, values["loss"])
            if blow:
                blow(step)

        subject.resume()
        return str(subject.distill(on_step=on_step).export)

    return ForkedRun(work, trial.workspace / "log")


def _run(trial: Trial[Checkpointing], blow: Blow | None, *expected: int) -> ForkedRun:
    """Resume the run and wait until it ends. An unexpected end is the subject's fault."""
    child = _start(trial, blow)
    with trial.subject_fault():
        _check(child.finish(), *expected)
    return child


def _check(child: ForkedRun, *expected: int) -> None:
    if child.exit_code not in expected or not child.steps:
        raise RuntimeError(f"the run ended with {child.exit_code} after {len(child.steps)} steps: {child.log[-2000:]}")


def _killed_in_write(trial: Trial[Checkpointing], at: int) -> Blow:
    """The kernel kills the process (SIGXFSZ) halfway through the next file as large as a checkpoint.

    A limit on the file size always hits the middle of a write. A signal from outside could miss it.
    """

    def blow(step: int) -> None:
        if step == at - 1 and (present := _settled(trial, step)):
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            half = largest_file(present[0]) // 2
            resource.setrlimit(resource.RLIMIT_FSIZE, (half, resource.RLIM_INFINITY))
        if step == at + at // 2 - 1:  # nothing was written, so end it before the next save is due
            os.killpg(0, signal.SIGKILL)

    return blow


def _killed_at(trial: Trial[Checkpointing], fatal: int) -> Blow:
    """Send SIGKILL after a step between two saves, once the previous checkpoint exists. At most N steps may be lost."""

    def blow(step: int) -> None:
        if step >= fatal:
            _settled(trial, step)
            os.killpg(0, signal.SIGKILL)

    return blow


def _killed_within(trial: Trial[Checkpointing], fatal: int, fraction: float) -> ForkedRun:
    """Send SIGKILL from outside at a random moment of the step after `fatal`."""
    child = _start(trial)
    with trial.subject_fault():
        last = time.monotonic()
        for step in child.follow():
            now = time.monotonic()
            if step >= fatal:
                time.sleep(fraction * (now - last))
                child.kill()
            last = now
        _check(child, -signal.SIGKILL, 0)  # on a busy machine the run may end before the signal arrives
    return child


def _settled(trial: Trial[Checkpointing], step: int) -> list[Path]:
    """Wait for a background writer until the newest checkpoint that is due exists; return all checkpoints."""
    every = trial.parameters["checkpoint_every"]
    last_due = step // every * every
    give_up = time.monotonic() + trial.parameters["settle_seconds"]
    while last_due not in (present := _saved(trial)) and time.monotonic() < give_up:
        time.sleep(_POLL_SECONDS)
    return list(present.values())


def _saved(trial: Trial[Checkpointing]) -> dict[int, Path]:
    """The checkpoints of the killed runs, by step in order."""
    files = weight_files(trial.subject)
    return saved(files, directory_of(trial, _RUN), trial.parameters["steps"])


def _torn(trial: Trial[Checkpointing]) -> list[str]:
    """After a crash, the checkpoints that cannot be read, or lack a file of the first one."""
    present = list(_saved(trial).values())
    return [path.name for path in present if not is_whole(path, present[0])]


def _misnumbered(trial: Trial[Checkpointing]) -> list[str]:
    """The checkpoints of the killed runs whose content names another step than the file name."""
    return [path.name for step, path in _saved(trial).items() if is_misnumbered(path, step)]


def _state_differs(trial: Trial[Checkpointing]) -> list[str]:
    """The tensors of the newest checkpoint, with optimizer and generators, that differ from the undisturbed run."""
    files = weight_files(trial.subject)
    with trial.subject_fault():
        in_peace = saved(files, Path(trial.subject.directory), trial.parameters["steps"])
    crashed = _saved(trial)
    if not in_peace or crashed.keys() != in_peace.keys():
        return [f"checkpoints of steps {list(crashed)}, in peace of {list(in_peace)}"]
    newest = max(in_peace)
    return unlike(files, crashed[newest], in_peace[newest])


def _lost(before: ForkedRun, after: ForkedRun) -> int:
    """The number of steps that were repeated after a crash, or never made."""
    return before.steps[-1][0] - (after.steps[0][0] - 1)
