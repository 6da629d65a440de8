"""The local forge: pull requests live in refs of the repository itself."""
