"""Stateless GitOps batch reconciler: read everything once, compute purely, write once."""

__version__ = "0.2.0rc1"
