"""Implementations of APR v2 with one known defect each."""
