"""`python -m harness.cli`, for where the console script is not on PATH."""

from harness.cli import main

main()
