"""The supervisor: the process above one trial, which sees to it that nothing of the trial outlives it.

It leads a session of its own, adopts the orphans of its descendants, and holds the reading end of a leash whose other
end only the harness has. A byte on the leash, or its end because the harness died, ends the trial; so does the trial's
own end, whatever it leaves running.
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
from typing import NoReturn

from harness.execution.messages import Exited, Message, Started, line
from harness.execution.process_control import adopt_orphans, die_with_parent, end_descendants

__all__ = ["FINISH", "STOP", "supervise"]

STOP = b"s"
"""On the leash: end the trial now; its stack is printed to stderr first."""
FINISH = b"f"
"""On the leash: the trial may exit."""
STACK_DUMP_SECONDS = 0.2
"""What a trial that is stopped gets to print its stack."""


def supervise(work: Callable[[int], None], messages: int, leash: int) -> NoReturn:
    """Run `work` in a child, in a session of its own, and exit when it and all its descendants are gone.

    `work` gets a descriptor that becomes readable once it may exit. Messages written: `Started` and, at the end,
    `Exited`.
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
        for descriptor in (child_ended, waker, permit, leash):
            os.close(descriptor)
        _become_trial(supervisor, work, may_exit)
    os.close(may_exit)
    _tell(messages, Started(child))
    status = _wait(child, child_ended, leash, permit)
    end_descendants()
    if os.WIFSIGNALED(status):
        _tell(messages, Exited(signal=signal.Signals(os.WTERMSIG(status)).name))
    else:
        _tell(messages, Exited(code=os.WEXITSTATUS(status)))
    os._exit(0)


def _become_trial(supervisor: int, work: Callable[[int], None], may_exit: int) -> NoReturn:
    os.setsid()
    die_with_parent(supervisor)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # When memory runs out the kernel should take the trial, not the harness or the user's shell.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as adjustment:
        adjustment.write("1000")
    faulthandler.enable(all_threads=True)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    code = 1
    try:
        work(may_exit)
        code = 0
    except BaseException:  # what the trial could not report any more, its descriptors being gone, say
        with contextlib.suppress(Exception):
            traceback.print_exc()
    finally:
        # No interpreter shutdown: destructors of a subject could hang there, and nothing is left to say.
        os._exit(code)


def _wait(child: int, child_ended: int, leash: int, permit: int) -> int:
    """The child's wait status; ends the child when the leash says so."""
    watched = [child_ended, leash]
    while True:
        ready, _, _ = select.select(watched, [], [])
        if child_ended in ready:
            os.read(child_ended, 4096)
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                return status
        if leash in ready:
            command = os.read(leash, 1)
            if command == FINISH:
                if permit >= 0:
                    os.close(permit)
                    permit = -1
                continue
            if command == STOP:
                os.kill(child, signal.SIGUSR1)
                time.sleep(STACK_DUMP_SECONDS)
            os.kill(child, signal.SIGKILL)
            watched = [child_ended]


def _tell(messages: int, message: Message) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(messages, line(message))
