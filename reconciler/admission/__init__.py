"""What a cluster would refuse: objects of a change, judged against what that cluster has (D44). Pure."""
