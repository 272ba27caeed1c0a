"""The tool `harness trainer`, and other trainers and engines as subjects: their files, output and processes.

`trainer_file` reads the TOML file, `output_events` what a trainer prints (pure), `command_line` runs it, and
`directory` finds what it wrote. None of them knows a claim; what a claim sees of a trainer is in its family's adapters,
`falsifiers/<family>/external.py`.
"""
