"""Runs subjects: to the end under a watch, in a forked process, or once more with other parameters."""
