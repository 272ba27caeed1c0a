"""The command `harness`.

Each command of the core is a module of this package. Commands of tools and of other distributions are entry points of
the group `harness.commands`. All are imported when they are called.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

import click

from harness.base.plugins import NAME, Plugin, PluginError, plugins
from harness.base.vocabulary import ExitStatus
from harness.report.terminal.printing import discard_unwritten, tell
from harness.report.terminal.workflow_commands import annotate, escape_outputs

__all__ = ["main"]

_COMMANDS = {
    "run": "run claims: real work, judged, proven by mutants, sealed",
    "list": "list the claims of the project",
    "show": "show what a claim says, what runs here, what would refute it",
    "lint": "check that contracts can be satisfied, and violated",
    "status": "show what the evidence says of every claim",
    "verify": "check bundles and judge them again",
    "report": "write bundles as pages, a comment, or files for CI",
    "new": "scaffold a claim: contract, falsifier, mutant, test",
}
"""Summaries of the core's commands, each short enough for a line of 80 columns."""
_COLUMNS = 80
_LONGEST_MESSAGE = 10_000
"""Maximum characters of a message, because a name from a user or a file can be of any length."""
_OF_CLICK = ("Invalid value", "Missing ", "No such ", "Got unexpected ", "Option ", "Could not open ")
"""Prefixes of click's own messages."""
_JARGON = (("a valid float range", "a number"), ("a valid float", "a number"), ("a valid integer range", "an integer"))
"""What click calls a value that is not even a number."""
_PLUGGED = ("harness.commands", "harness.reports", "harness.handlers", "harness.lint", "harness.jobs")
"""The groups whose code runs in the process of the command."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_EPILOG = (
    "Exit status: 0 all PASS, 1 some FAIL, 2 refused (usage, invalid contract, unsound bundle), "
    "3 nothing failed but something was NOT_MEASURED or nothing ran, 4 VOID, 130 interrupted, "
    "141 the reader of the output has gone."
)


class _ReaderLeftError(Exception):
    """The reader closed the output. click would turn a BrokenPipeError into status 1, which means FAIL."""


@contextmanager
def _noticing() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise _ReaderLeftError from error


class _Commands(click.Group):
    """Imports the module of a command only when it is called, so that `harness list` starts fast."""

    def make_context(self, *arguments: Any, **named: Any) -> click.Context:
        with _noticing():
            return super().make_context(*arguments, **named)

    def invoke(self, ctx: click.Context) -> object:
        with _noticing():
            status: object = super().invoke(ctx)
        return status

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_COMMANDS, *_tools()]  # the module harness.cli.list hides the builtin once it is imported

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _COMMANDS:
            command: click.Command = import_module(f"harness.cli.{cmd_name}").command
        else:
            tools = _tools()
            self.commands = dict.fromkeys([*_COMMANDS, *tools])  # type: ignore[assignment]  # click suggests the nearest of these names
            if cmd_name not in tools:
                return None
            command = _loaded(tools[cmd_name])
        gc.freeze()  # what is imported stays, so no collection needs to look at it
        gc.enable()
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the summaries. click would import every command of the core."""
        with formatter.section("Commands"):
            formatter.write_dl([*_COMMANDS.items()])
        with formatter.section("Tools"):
            formatter.write_dl([(name, _summary(tool)) for name, tool in _tools().items()])


def _tools() -> dict[str, Plugin]:
    """Return the commands of plugins. None of them can replace a command of the core."""
    return {name: tool for name, tool in plugins("harness.commands").items() if name not in _COMMANDS}


def _loaded(tool: Plugin) -> click.Command:
    command = tool.load()
    if not isinstance(command, click.Command):
        raise PluginError(f"{tool.name} of {tool.origin} is no click command")
    return command


def _summary(tool: Plugin) -> str:
    try:
        return _loaded(tool).get_short_help_str(_COLUMNS - len(tool.name) - 4)
    except PluginError:
        return f"cannot be used; `harness {tool.name}` says why"


@click.group(cls=_Commands, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="falsifier-harness", prog_name="harness")
def _group() -> None:
    """Try to refute claims about GPU training and kernels by doing the real work."""
    click.get_current_context().color = _colour()


def _colour() -> bool | None:
    """Return whether to use colours, from NO_COLOR, FORCE_COLOR and TERM; None: only on a terminal."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return True if os.environ.get("FORCE_COLOR") else None


def _refusals() -> tuple[type[Exception], ...]:
    """Return the exceptions whose text is a complete message. Imported only if an exception occurs."""
    from harness.contract import ContractError
    from harness.contract.project import ProjectError
    from harness.machine.cache_folder import NoCacheFolderError

    return ContractError, PluginError, ProjectError, NoCacheFolderError


def main() -> None:
    """Run the command line. Every refusal is one line with the cause and the remedy."""
    _open_what_was_closed()
    escape_outputs()
    try:
        status = _group.main(prog_name="harness", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        with suppress(OSError):
            error.show()
        status = ExitStatus.REFUSED
    except click.ClickException as error:
        _say(_refusal(error))
        if isinstance(error, click.UsageError) and error.ctx is not None:
            with suppress(OSError):
                tell(f"`{error.ctx.command_path} --help` shows how to use it", err=True)
        status = ExitStatus.REFUSED
    except _refusals() as error:
        _say(str(error))
        status = ExitStatus.REFUSED
    except (click.Abort, KeyboardInterrupt):
        _say("interrupted")
        status = ExitStatus.INTERRUPTED
    except (_ReaderLeftError, BrokenPipeError):
        discard_unwritten(sys.stdout)
        status = ExitStatus.UNREAD
    except SystemExit:
        raise
    except BaseException as error:
        if "KeyboardInterrupt" in str(error) and not isinstance(error, Exception):
            # A library in Rust panics if Ctrl-C comes while it imports a module.
            _say("interrupted")
            sys.exit(int(ExitStatus.INTERRUPTED))
        # Python's own status for a crash is 1, which means FAIL.
        if isinstance(error, OSError) and error.errno in _FULL:
            if error.filename is None:
                discard_unwritten(sys.stdout)
            place = error.filename or "the output"
            _say(f"{place} cannot be written: {error.strerror}; free some space and run it again")
            status = ExitStatus.NOT_MEASURED
        elif isinstance(error, FileNotFoundError) and not os.stat(os.curdir).st_nlink:
            _say("the current folder has been removed; change to another one")
            status = ExitStatus.REFUSED
        else:
            with suppress(OSError):
                traceback.print_exc()
            _say(f"this is a defect of {_culprit(error)}; nothing counts as measured")
            status = ExitStatus.NOT_MEASURED
    sys.exit(int(status or 0))


def _culprit(error: BaseException) -> str:
    """Return the other distributions whose plugins raised the error, else the harness."""
    raised = {frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)}
    points = [plugin.entry_points for group in _PLUGGED for plugin in plugins(group).values()]
    others = {name for known in points for name, point in known.items() if name != NAME and point.module in raised}
    return " or ".join(sorted(others)) or "the harness"


def _refusal(error: click.ClickException) -> str:
    """Return the text of an error. click's messages get a lower-case start and no full stop, like the harness's."""
    text = error.format_message()
    for jargon, plain in _JARGON:
        text = text.replace(jargon, plain)
    return text[0].lower() + text[1:].removesuffix(".") if text.startswith(_OF_CLICK) else text


def _say(text: str) -> None:
    """Print a message to stderr, as every refusal is printed. If stderr is full, only the exit status remains."""
    with suppress(OSError):
        for line in f"harness: {_shortened(text)}".split("\n"):
            tell(line, err=True)
    annotate("error", "harness", _shortened(text).splitlines())


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}… ({len(text)} characters)"


def _open_what_was_closed() -> None:
    """Connect standard streams that were closed at the start to /dev/null.

    Python has None for such a stream, and the next file that is opened gets its number: what a child prints would end
    up in it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            os.set_inheritable(number, True)
            stream = os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False)
            setattr(sys, name, stream)
