"""What the answers should be, computed from the definitions alone."""
