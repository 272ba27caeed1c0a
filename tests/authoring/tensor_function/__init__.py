"""Tests of the adversary of functions of tensors."""
