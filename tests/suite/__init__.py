"""Tests of harness.suite."""
