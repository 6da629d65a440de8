"""Update the locks of a fleet: resolve the clusters whose inputs changed, and list the changes."""
