"""What this machine offers, who holds it, and how it behaved: the only package that asks NVML, /proc or git."""
