"""Stateless GitOps batch reconciler: read everything once, compute purely, write once."""

__version__ = "0.1.0"
