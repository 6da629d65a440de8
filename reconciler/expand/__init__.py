"""Manifests to desired PackageVariants."""
