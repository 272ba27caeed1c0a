"""Tests of harness.tools."""
