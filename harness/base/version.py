"""The version of the harness. The package is built with it, and a source tree that is not installed has it too."""

__all__ = ["VERSION"]

VERSION = "0.1.0"
