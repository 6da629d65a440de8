"""Update the locks of a fleet: resolve the clusters with changed inputs, and list the changes."""
