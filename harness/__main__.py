"""The command `harness`, also as `python -m harness`, for where the script is not on PATH.

Ctrl-C while the command line is imported, or while it ends, ends it as any other Ctrl-C does.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
from contextlib import suppress

__all__ = ["main"]

_INTERRUPTED = 130


def main() -> None:
    """Run the command line."""
    gc.disable()  # until the command is imported: nothing of that is garbage
    try:
        from harness.cli import main as run

        run()
    except KeyboardInterrupt:
        os.write(2, b"harness: interrupted\n")
        os._exit(_INTERRUPTED)
    except SystemExit as end:
        awaited = [thread for thread in threading.enumerate() if not thread.daemon]
        if len(awaited) > 1 or not isinstance(end.code, int):
            raise
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(end.code)  # the interpreter would free every object, which takes as long as a tenth of the imports


if __name__ == "__main__":
    main()
