"""Documented mistakes of the field, each as a record and a subject that makes it, beside its mended form."""
