"""The subject we ship: a Qwen2 block whose backward runs on whichever backend it is given."""
