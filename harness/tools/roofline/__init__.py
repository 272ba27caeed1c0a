"""The measured roofs of a device, and where the kernels of a step lie under them. Needs torch."""
