"""Renderers: terminal, JSON and others; they only write to the output stream."""
