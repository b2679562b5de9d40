"""The HTML report: one self-contained file about one machine. ``document.page`` makes it."""
