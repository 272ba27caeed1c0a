"""The text that teacher, student and falsifier read, and a cache for tensors that are slow to compute."""
