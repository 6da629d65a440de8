"""Desired against actual: changes, safety, waves, messages."""
