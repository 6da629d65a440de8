"""From desired variants to pins: upstreams, the lock, the fixed point with dependencies."""

from reconciler.resolve.closure import Closed, close
from reconciler.resolve.resolution import Needs, Pin, Release, Resolution, ResolvedVariant
from reconciler.resolve.variants import resolve

__all__ = ["Closed", "Needs", "Pin", "Release", "Resolution", "ResolvedVariant", "close", "resolve"]
