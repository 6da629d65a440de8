"""The first commit of a repository that has no branch yet (`createBranch`); pure, its id known beforehand."""

from collections.abc import Iterator

from reconciler.inventory import Inventory, RepositoryView
from reconciler.objects import File, Signature, commit_bytes, object_id, tree_id
from reconciler.plan.authors import repository_commits
from reconciler.plan.changes import StartBranch

_README = {"README.md": File.of(b"Created by reconciler\n")}


def start_branch(view: RepositoryView, inventory: Inventory) -> Iterator[StartBranch]:
    """Yield the commit that begins an empty repository whose registration says `createBranch`.

    A repository that has branches, and not this one, is more likely misspelt than empty. As old as
    the oldest registration that asks for it, so that every package asks for the same commit.

    Source: porch pkg/externalrepo/git/git.go, initializeBranch.
    """
    git = view.manifest.spec.git
    if git is None or not git.create_branch or view.branches:
        return
    views = [v for v in inventory.views_of(view.url) if v.branch == view.branch]
    time = min(v.source.time for v in views)
    commits = repository_commits(inventory.views_of(view.url), inventory.policy.commits)
    author = Signature(*commits.author(""), time)
    committer = Signature(commits.name, commits.email, time)
    message = f"Initial commit: Creating {view.branch} branch\n"
    oid = object_id("commit", commit_bytes(tree_id(_README), (), author, committer, message))
    yield StartBranch(f"refs/heads/{view.branch}", _README, oid, message, time)
