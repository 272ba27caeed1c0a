"""What the commands print on a terminal, and in a pipe."""
