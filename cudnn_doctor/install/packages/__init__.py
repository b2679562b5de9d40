"""Distribution packages (the package method)."""
