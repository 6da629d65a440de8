"""Convert solutions to lock files and back, and check the invariants of locks."""
