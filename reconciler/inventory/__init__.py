"""The inventory of a run, snapshots of clusters, and the standing of the commit of a run."""
