"""Runs a pytest suite and says what it tested: executed assertions, executed parameter cells, mutants that survive."""
