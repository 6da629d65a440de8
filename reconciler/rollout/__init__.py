"""Rollouts: the waves of a set, and what may move next. Pure."""
