"""Authors of commits: whom the Repositories of one Git repository name."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from reconciler.inventory.inventory import RepositoryView
from reconciler.policy import Author, CommitPolicy

_UNSAFE = re.compile(r"[<>\x00-\x1f\x7f]")
"""Characters that end the name or email in a commit object."""


def repository_commits(views: Iterable[RepositoryView], commits: CommitPolicy) -> CommitPolicy:
    """Return how commits are made to the one repository that the views are of. Order-free.

    An email alone is the name too; where a Repository names neither, the author is the committer.

    Source: porch pkg/externalrepo/git, git.go, commit authors.
    """
    ordered = sorted(views, key=lambda view: (-len(view.directory), view.key))
    return replace(commits, authors=tuple(_authors(ordered)))


def _authors(views: Iterable[RepositoryView]) -> Iterator[Author]:
    for view in views:
        git = view.manifest.spec.git
        name = _UNSAFE.sub("", git.author).strip() if git else ""
        email = _UNSAFE.sub("", git.email).strip() if git else ""
        if name or email:
            yield Author(view.directory, name or email, email)
