"""The independent truth: a step of the decomposition in float64, written from its specification alone."""
