"""Tests of harness.tools.recorder, on a driver without a GPU."""
