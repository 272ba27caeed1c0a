"""The tool `harness falsify-tests`."""
