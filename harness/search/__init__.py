"""The search for a case that refutes a claim."""
