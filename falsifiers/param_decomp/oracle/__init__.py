"""The independent oracle: a step of the decomposition in float64, from its specification alone."""
