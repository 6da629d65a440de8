"""Kubernetes resources as files: YAML, documents, schema, merge."""
