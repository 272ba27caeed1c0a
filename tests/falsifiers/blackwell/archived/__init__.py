"""Tests of falsifiers.blackwell.archived."""
