"""Documented mistakes in ML code, and how many of them the harness and other checkers catch."""
