"""Products beside the core: each finds the core, and the core finds it by entry points alone."""
