"""Forges with an API: one implementation under thin dialects."""
