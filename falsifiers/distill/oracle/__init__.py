"""The independent oracle: the training step that the contract's parameters describe; it imports no subject."""
