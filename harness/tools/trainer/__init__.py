"""The tool `harness trainer`."""
