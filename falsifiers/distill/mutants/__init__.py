"""Subjects with one known defect each; every one replays a bug that somebody really had.

Nothing is imported here: a claim's evidence speaks for the modules that its own mutants come from, and for no others.
"""
