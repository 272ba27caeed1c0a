"""Tests of harness.external.recorder, on a driver without a GPU."""
