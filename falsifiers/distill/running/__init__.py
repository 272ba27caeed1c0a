"""Makes subjects run: to the end while a watch counts, in a forked process, or once more with other parameters."""
