"""Adapters: the manifests of four ecosystems, as they are, into one model."""
