"""Resolve desired variants: upstreams, the lock, and the fixed point with dependencies."""
