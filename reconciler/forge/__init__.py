"""Forges: one Protocol, thin dialects, one budget."""
