"""The only writes of a run: drafts, publishing, pull requests, state."""
