"""Expected values in float64, from the definitions; nothing here imports a subject."""
