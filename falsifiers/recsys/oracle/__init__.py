"""Expected values, computed from the definitions alone."""
