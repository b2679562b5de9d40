"""Wheels in Python environments (the wheel method)."""
