"""The supervisor: the parent process of one trial. It ensures that no process of the trial outlives the trial.

It leads its own session, adopts orphaned descendants, and reads the control pipe, which only the harness writes to. A
byte on the pipe, or its end if the harness dies, ends the trial. When the trial ends, the supervisor ends all processes
that the trial left running.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import resource
import select
import signal
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import NoReturn

from harness.execution.authentication import signer
from harness.execution.messages import Exited, Message, Started, encode
from harness.machine.process_control import adopt_orphans, die_with_parent, end_descendants

__all__ = ["END", "FINISH", "STOP", "supervise"]

STOP = b"s"
"""Control byte: end the trial now. Its processes first print their stacks to stderr."""
END = b"e"
"""Control byte: end the trial now, without stacks."""
FINISH = b"f"
"""Control byte: the trial may exit."""
STACK_DUMP_SECONDS = 0.2
"""Seconds for a stopped trial to print its stack."""


def supervise(work: Callable[[int], None], messages: int, control_pipe: int, key: int) -> NoReturn:
    """Run `work` in a child process with its own session. Exit when the child and all its descendants have ended.

    `work` gets a descriptor that becomes readable when it may exit. The supervisor sends `Started` and finally
    `Exited`, signed with the key from the pipe `key`. The child does not get that key.
    """
    os.setsid()
    adopt_orphans()
    child_ended, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    may_exit, permit = os.pipe()
    supervisor = os.getpid()
    child = os.fork()
    if child == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in (child_ended, waker, permit, control_pipe, key):
            os.close(descriptor)
        _become_trial(supervisor, work, may_exit)
    os.close(may_exit)
    tell = partial(_tell, messages, signer(key))
    tell(Started(child, supervisor))
    status = _wait(child, child_ended, control_pipe, permit)
    end_descendants()
    if os.WIFSIGNALED(status):
        tell(Exited(signal=signal.Signals(os.WTERMSIG(status)).name))
    else:
        tell(Exited(code=os.WEXITSTATUS(status)))
    os._exit(0)


def _become_trial(supervisor: int, work: Callable[[int], None], may_exit: int) -> NoReturn:
    os.setsid()
    die_with_parent(supervisor)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # If memory runs out, the kernel should kill the trial, not the harness or the user's shell.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as adjustment:
        adjustment.write("1000")
    faulthandler.enable(all_threads=True)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    code = 1
    try:
        work(may_exit)
        code = 0
    except BaseException:  # what the trial could not report, for example without its descriptors
        with contextlib.suppress(Exception):
            traceback.print_exc()
    finally:
        # No interpreter shutdown: a subject's destructors could hang there.
        os._exit(code)


def _wait(child: int, child_ended: int, control_pipe: int, permit: int) -> int:
    """Wait for the child and return its wait status. A control byte ends the child."""
    watched = [child_ended, control_pipe]
    while True:
        ready, _, _ = select.select(watched, [], [])
        if child_ended in ready:
            os.read(child_ended, 4096)
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                return status
        if control_pipe in ready:
            command = os.read(control_pipe, 1)
            if command == FINISH:
                if permit >= 0:
                    os.close(permit)
                    permit = -1
                continue
            if command == STOP:
                with contextlib.suppress(ProcessLookupError):  # it may not have its own session yet
                    os.killpg(child, signal.SIGUSR1)  # also the process of an isolated subject
                time.sleep(STACK_DUMP_SECONDS)
            os.kill(child, signal.SIGKILL)
            watched = [child_ended]


def _tell(messages: int, sign: Callable[[bytes], bytes], message: Message) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(messages, sign(encode(message)))
