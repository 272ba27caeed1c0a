"""What this machine offers and how it behaves. This is the lowest package that asks NVML, /proc or git."""
