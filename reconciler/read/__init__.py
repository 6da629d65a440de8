"""The only reads of a run: manifests, snapshot, repositories, index, contents."""
