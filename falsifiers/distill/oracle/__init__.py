"""The independent oracle: what a training step must be by the contract's parameters; it imports no subject."""
