"""`harness calibrate`: the margins of a claim over many seeds."""
