"""Automatic planting of defects in a claim's subject, in the manner of mutation testing.

`campaign.py` runs the subject once to see which lines a claim reaches, plants one defect at a time in a copy of the
project, and runs the falsifier on it. `defects.py` lists the defects of a source file.
"""
