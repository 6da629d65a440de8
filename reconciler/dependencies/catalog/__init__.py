"""Collect what can be installed and what each cluster asks for, from documents and snapshots."""
