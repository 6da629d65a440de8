"""The inventory of a run, snapshots of clusters, and how the commit of a run stands to the default branch."""
