"""The tool `harness probe`."""
