"""Resolve the dependencies of one cluster: build the problem, solve it, verify and explain the result."""
