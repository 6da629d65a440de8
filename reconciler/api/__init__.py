"""Manifests as users write them: pydantic models, field for field."""
