"""The tool `harness watch`: judges a training job while it runs."""
