"""Searches with Hypothesis: for a case that refutes a claim, for observations that satisfy or violate a contract."""
