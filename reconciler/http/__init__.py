"""Requests over HTTP: the one client of forges, registries and chart repositories."""
