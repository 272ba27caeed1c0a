"""The reference implementation: a Qwen2 block whose forward and backward run on a chosen backend."""
