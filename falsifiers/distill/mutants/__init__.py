"""Subjects with one known defect each; each replays a bug from a real project.

Nothing is imported here: a claim's evidence speaks for the modules that its own mutants come from, and for no others.
"""
