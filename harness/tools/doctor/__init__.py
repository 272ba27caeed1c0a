"""`harness doctor`: what this machine offers."""
