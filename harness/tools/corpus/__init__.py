"""Documented mistakes of the field, and how many of them the harness and other checkers catch."""
