"""Tests of `harness watch`."""
