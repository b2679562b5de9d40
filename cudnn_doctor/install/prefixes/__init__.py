"""Versions side by side under a prefix (the tarball method)."""
