"""Resolve desired variants: upstreams, the lock, and the fixed point with dependencies."""

from reconciler.resolve.fleet import ResolvedFleet, resolve_fleet
from reconciler.resolve.resolution import Needs, Pin, Release, Resolution, ResolvedVariant

__all__ = ["Needs", "Pin", "Release", "Resolution", "ResolvedFleet", "ResolvedVariant", "resolve_fleet"]
