"""Prove a cuDNN copy by real work on the GPU, in child processes."""
