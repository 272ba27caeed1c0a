"""Claims about training nanochat on GB10: its loss, its kernels, and published figures of its speed."""
