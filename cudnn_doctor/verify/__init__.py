"""Proof of one cuDNN copy by real work on the GPU, in child processes."""
