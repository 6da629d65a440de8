"""One run of each command: read everything once, compute everything purely, write everything once."""
