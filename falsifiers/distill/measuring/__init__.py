"""What falsifiers measure themselves: losses on held-out text, and the weights in files."""
