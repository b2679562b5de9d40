"""Signatures of error logs, as data, and the matcher that joins them with the machine."""
