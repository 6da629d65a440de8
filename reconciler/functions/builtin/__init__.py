"""Functions that run in this process."""
