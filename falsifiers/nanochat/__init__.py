"""Claims about training nanochat on GB10: its loss, its kernels, and what was said of its speed."""
