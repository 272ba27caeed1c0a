"""Tests of the inspection of checkpoints."""
