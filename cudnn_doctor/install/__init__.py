"""Plans, the backends that write them, the executor with journal and undo, downloads."""
