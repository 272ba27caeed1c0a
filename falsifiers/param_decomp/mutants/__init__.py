"""Decompositions with one known defect each."""
