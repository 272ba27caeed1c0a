"""The command `harness`, also as `python -m harness`, for where the script is not on PATH.

Ctrl-C while the command line is imported, or while it ends, ends it as any other Ctrl-C does.
"""

from __future__ import annotations

import os

__all__ = ["main"]

_INTERRUPTED = 130


def main() -> None:
    """Run the command line."""
    try:
        from harness.cli import main as run

        run()
    except KeyboardInterrupt:
        os.write(2, b"harness: interrupted\n")
        os._exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
