"""The tool `harness trainer`, and other trainers and engines as subjects: their files, output and processes.

`trainer_file` reads the TOML file, `output_events` what a trainer prints (pure), `command_line` runs it, and
`directory` finds what it wrote. None of them depends on a claim. The adapters between claims and trainers are in
`falsifiers/<family>/external.py`.
"""
