"""Fetch files and unpack them while they arrive."""
