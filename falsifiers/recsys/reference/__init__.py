"""Our implementations."""
