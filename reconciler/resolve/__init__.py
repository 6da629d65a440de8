"""Upstreams pinned to commits, to a fixed point."""
