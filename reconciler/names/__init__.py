"""Names of things: objects, packages and repositories, refs and paths, Git objects, trailers."""
