"""`harness replay`: the counterexample of a bundle, run again against the present code."""
