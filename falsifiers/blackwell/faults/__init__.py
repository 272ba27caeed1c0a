"""Errors that falsifiers inject into a subject."""
