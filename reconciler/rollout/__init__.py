"""Rollouts: the waves of a set, the health of what was published, and what may move next. Pure."""
