"""Stateless GitOps batch reconciler: read everything once, compute purely, write once."""

__version__ = "0.1.0"

REPOSITORY = "YOUR-ORG/reconciler"
"""Where this was released; a release writes it, and the commit (`.ci/stamp`)."""

COMMIT = "0000000000000000000000000000000000000000"
