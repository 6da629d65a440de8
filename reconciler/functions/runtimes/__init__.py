"""Runtimes for functions that are not built in."""
