"""Decide which package revisions run, who owns their CRDs, and which unneeded packages are removed."""
