"""An external trainer as a subject: the file that describes it, its output, and its process.

`trainer_file` reads the TOML file, `output_events` what a trainer prints (pure), `command` runs it,
`directory` finds what it wrote, `subject` is the choice of one on the command line. None of them knows a claim; what a
claim sees of a trainer is in its family's adapters, `falsifiers/<family>/external.py`.
"""
