"""Kernels as subjects, for `harness kernel check`: a function of tensors, its contract and its mutants."""
