"""From desired variants to pins: upstreams, the lock, the fixed point with dependencies."""

from reconciler.resolve.resolution import Needs, Pin, Release, Resolution, ResolvedVariant
from reconciler.resolve.variants import resolve

__all__ = ["Needs", "Pin", "Release", "Resolution", "ResolvedVariant", "resolve"]
