"""The tool `harness roofline`."""
