"""Judge objects of a change by the rules of the cluster that would get them (D44). Pure."""
