"""The tool `harness inspect`."""
