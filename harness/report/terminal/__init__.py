"""The output of commands on a terminal and in a pipe."""
