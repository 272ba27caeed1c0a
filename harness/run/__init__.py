"""A run of claims: what is planned, executed and judged, and the events that tell of it."""
