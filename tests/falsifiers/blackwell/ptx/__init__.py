"""Tests of falsifiers.blackwell.ptx."""
