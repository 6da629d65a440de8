"""Faults in single units of a run: a world of units that differ in their names, and functions that fail."""
