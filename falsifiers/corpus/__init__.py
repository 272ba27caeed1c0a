"""Documented mistakes of the field, each as a record and a subject that makes it, with a switch to its mended form."""
