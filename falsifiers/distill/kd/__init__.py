"""Falsifiers of claims about the distillation loss itself: its value and its gradients, over all inputs."""
