"""`harness watch`: judges a training job while it runs."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

import click

from harness.authoring.faults import NotMeasured
from harness.base import near
from harness.base.vocabulary import ExitStatus
from harness.cli.options import duration, named_texts, value_of
from harness.contract.installed import or_installed
from harness.machine.cache_folder import NoCacheFolderError
from harness.report.terminal.printing import tell, tell_all
from harness.tools.one_claim import project_here
from harness.tools.watch.action import Action
from harness.tools.watch.checks import CHECKS
from harness.tools.watch.facts import WatchedAlready, states_folder
from harness.tools.watch.job_state import JobState
from harness.tools.watch.listing import listed, total_line
from harness.tools.watch.setting_up import Asked, begin, resume
from harness.tools.watch.text import summary
from harness.tools.watch.watcher import Orders, Watcher

__all__ = ["command"]

_PATH = click.Path(path_type=Path)


@click.command("watch", short_help="judge a training job while it runs")
@click.argument("trainer", metavar="TRAINER.toml", required=False, type=_PATH)
@click.argument("command_line", metavar="[-- COMMAND…]", nargs=-1, type=click.UNPROCESSED)
@click.option("--attach", metavar="RUN_DIR", type=_PATH, help="Watch the job that writes to this folder.")
@click.option("--pid", type=int, help="The process of the job that runs already.")
@click.option("--slurm-job", "slurm", default="", metavar="ID", help="Its Slurm job, for its end and for scancel.")
@click.option("--output", metavar="DIR", type=_PATH, help="The folder that a started job writes to: {output}.")
@click.option("-P", "parameters", multiple=True, metavar="KEY=VALUE", help="A parameter; see above.")
@click.option(
    "--on-refute",
    "action",
    type=click.Choice([str(action) for action in Action]),
    default=str(Action.LOG),
    show_default=True,
    help="What to do about the first refutation.",
)
@click.option("--hook", default="", metavar="COMMAND", help="Run by sh on a refutation; gets JSON on stdin.")
@click.option("--grace", type=duration, default="60s", show_default=True, help="From SIGTERM to SIGKILL.")
@click.option("--without", multiple=True, metavar="CHECK", help="Leave a check out.")
@click.option("--every", type=duration, default="2s", show_default=True, help="Time between two polls.")
@click.option("--issue", default="WATCH", show_default=True, help="The issue of the claim on the job.")
@click.option("--name", default="", help="The name of the job; by default, that of the trainer.")
@click.option("--record", "records", is_flag=True, help="Start the job with the recorder of the CUDA driver.")
@click.option("--evidence", type=_PATH, metavar="DIR", help="The folder for bundles, instead of evidence/.")
@click.option("--html", "page", type=_PATH, metavar="FILE", help="Write a page that refreshes itself.")
@click.option("--state", type=_PATH, metavar="DIR", help="The folder for the facts of this job.")
@click.option("--resume", "resumed", type=_PATH, metavar="DIR", help="Continue with the facts in this folder.")
@click.option("--list", "lists", is_flag=True, help="List the watched jobs of this user, and the GPU-hours saved.")
@click.option("--since", type=duration, help="With --list: only jobs with news in this time, such as 24h.")
def command(
    trainer: Path | None,
    command_line: Sequence[str],
    attach: Path | None,
    pid: int | None,
    slurm: str,
    output: Path | None,
    parameters: Sequence[str],
    action: str,
    hook: str,
    grace: float,
    without: Sequence[str],
    every: float,
    issue: str,
    name: str,
    records: bool,
    evidence: Path | None,
    page: Path | None,
    state: Path | None,
    resumed: Path | None,
    lists: bool,
    since: float | None,
) -> ExitStatus:
    """Judge a training job while it runs, and seal each refutation at once.

    \b
    harness watch TRAINER.toml --output DIR -- COMMAND…
    harness watch TRAINER.toml --attach DIR --pid PID
    harness watch --resume DIR
    harness watch --list

    As in: harness watch train.toml -P steps=5000 --output runs/a --on-refute stop -- python train.py --out runs/a

    TRAINER.toml says what the output means and where checkpoints are (docs/trainers.md). Without a COMMAND, the command
    line is that of the file. The job runs in a session of its own, and its output is copied. Ctrl-C and SIGTERM are
    passed on to a job that was started here. If the watcher itself is killed, the job goes on, and --resume continues.

    Parameters by -P, beside those of the trainer. Requested values: steps, device, jit=none, learning_rate,
    warmup_steps, schedule=constant|linear|cosine, optimizer=adamw, checkpoint_every, predicted_bytes. Bounds: learn_by,
    fall, rise, window, stall_seconds, stall_steps, collapse, collapse_seconds, late_seconds, late_steps,
    settle_seconds, creep_windows, creep_seconds, memory_slack, idle_seconds, step_factor, least_movement, rate_error.
    A value that is not requested is not judged.

    --on-refute: log seals and prints; notify also calls the hook; stop sends SIGTERM, once; kill sends SIGTERM, and
    after the grace SIGKILL. With --slurm-job both use scancel. A watcher that has failed ends no job.

    Exit status: 1 if something is refuted; 3 if the watcher failed; 2 if it was refused; else 0.
    """
    if lists:
        return _list(since)
    project = project_here()
    try:
        if resumed is not None:
            watcher = resume(_state(resumed), _say, _show)
        else:
            if trainer is None:
                raise click.UsageError("name the trainer's TOML file, or --resume DIR")
            if (attach or pid or slurm) and command_line:
                raise click.UsageError("a job that runs already has its command line; leave COMMAND out")
            if attach is not None and not attach.is_dir():
                folders = [str(path) for path in attach.parent.glob("*/")]
                hint = near.hint(str(attach), folders, "name the folder that the job writes to")
                raise click.BadParameter(f"there is no folder {attach}; {hint}", param_hint="--attach")
            known = {check.name for check in CHECKS}
            if strange := sorted(set(without) - known):
                raise click.BadParameter(
                    f"{strange[0]!r} is none of {', '.join(sorted(known))}", param_hint="--without"
                )
            if action == Action.NOTIFY and not hook:
                raise click.UsageError("--on-refute notify needs --hook COMMAND")
            values = {key: value_of(text) for key, text in named_texts(parameters, "-P").items()}
            orders = Orders(Action(action), ("sh", "-c", hook) if hook else (), grace, slurm, every, max(every, 1.0),
                            without=tuple(without))  # fmt: skip
            folder = attach or output
            asked = Asked(
                or_installed(trainer),
                values,
                folder.absolute() if folder is not None else None,
                orders,
                issue,
                evidence.absolute() if evidence is not None else None,
                name,
                page.absolute() if page is not None else None,
                tuple(command_line),
                pid,
                is_attached=bool(attach or pid or slurm),
                records=records,
            )
            watcher = begin(asked, state, project, _say, _show)
    except NotMeasured as error:
        raise click.ClickException(str(error)) from error
    except (ValueError, OSError, WatchedAlready, NoCacheFolderError) as error:
        raise click.UsageError(str(error)) from error
    _say(f"harness watch: the facts of this job are in {watcher.facts.path.parent}")
    with watcher.facts, suppress(_Left):
        _pass_on_signals(watcher)
        watcher.run()
    tell_all([*summary(watcher.job)], err=True)
    return _status(watcher.job)


class _Left(BaseException):
    """The user ended the watcher, and the job continues. A `BaseException`, so that no poll catches it."""


def _pass_on_signals(watcher: Watcher) -> None:
    process = watcher.readers.process

    def handle(number: int, frame: FrameType | None) -> None:
        if process is None or not process.is_ours:
            _say("harness watch: leaves; the job goes on")
            raise _Left
        _say(f"harness watch: passes {signal.Signals(number).name} on to the job")
        process.end(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)


def _status(job: JobState) -> ExitStatus:
    if job.refutations:
        return ExitStatus.FAIL
    return ExitStatus.NOT_MEASURED if job.broken else ExitStatus.PASS


def _state(named: Path) -> Path:
    """Return the folder of the facts, by its path or by its name in the list."""
    return named if named.exists() or named.is_absolute() else states_folder() / named


def _list(since: float | None) -> ExitStatus:
    jobs = []
    for job in listed(0.0 if since is None else time.time() - since):
        if isinstance(job, str):
            tell(job, err=True)
        else:
            jobs.append(job)
            tell(job.line)
    tell(total_line(jobs))
    return ExitStatus.PASS if jobs else ExitStatus.NOT_MEASURED


def _say(text: str) -> None:
    with suppress(OSError):
        tell(text, err=True)


def _show(content: bytes) -> None:
    with suppress(OSError, ValueError):
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
