"""Versions and constraints: one type for all, and the grammar of each ecosystem."""
