"""Commits of the plan: author and committer, messages in Porch's form, the first commit of a repository."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from reconciler.base.wording import json_text, plural
from reconciler.inventory.inventory import Inventory, RepositoryView
from reconciler.names.objects import File, Signature, commit_bytes, object_id, tree_id
from reconciler.names.refs import object_name
from reconciler.plan.changes import StartBranch
from reconciler.policy import Author, CommitPolicy
from reconciler.resolve.ownership import package_name
from reconciler.resolve.resolution import Pin

CLONE = "Creating new revision by cloning"
EDIT = "Creating new revision by copying previous revision"
UPGRADE = "Upgrading revision"


def commit_message(title: str, path: str, workspace: str, task: Mapping[str, Any]) -> str:
    """Return a draft commit's message: the title, two blank lines, the `kpt:` line.

    Source: porch pkg/externalrepo/git/commit.go, AnnotateCommitMessage.
    """
    annotation = {"package": path, "workspaceName": workspace, "revision": "0", "task": dict(task)}
    return f"{title}\n\n\nkpt:{json_text(orjson.dumps(annotation).decode())}\n"


def with_lines(message: str, lines: Sequence[str]) -> str:
    """Return a message with lines between its title and the `kpt:` lines at its end."""
    title, kpt = message.split("\n\n\n", 1)
    return "\n\n".join([title, "\n".join(lines), kpt]) if lines else message


def group_message(packages: Mapping[str, str], conflicts: Sequence[str] = ()) -> str:
    """Return the message of a commit on a group's branch: one `kpt:` line for each package, sorted.

    Args:
        packages: The workspace of each package by its full path.
        conflicts: The lines that name the conflicts of the packages.
    """
    count = len(packages)
    lines = [
        f"kpt:{orjson.dumps({'package': path, 'workspaceName': packages[path], 'revision': '0'}).decode()}"
        for path in sorted(packages)
    ]
    message = "\n".join([f"Draft of {plural(count, 'package')}", "", "", *lines, ""])
    return with_lines(message, sorted(conflicts))


def relabelled(message: str, workspace: str) -> str:
    """Return a draft's message for another workspace of the same package."""
    return re.sub(r'"workspaceName":"[^"]*"', f'"workspaceName":"{workspace}"', message, count=1)


def clone_task(upstream: str) -> dict[str, Any]:
    """Return the task of a first creation from the named upstream package revision."""
    return {"type": "clone", "clone": {"upstreamRef": {"upstreamRef": {"name": upstream}}}}


def edit_task(source: str) -> dict[str, Any]:
    """Return the task of a draft made from the named published revision of the same package."""
    return {"type": "edit", "edit": {"sourceRef": {"name": source}}}


def upgrade_task(old: str, new: str, local: str) -> dict[str, Any]:
    """Return the task of a draft that brings a new upstream revision in."""
    refs = {"oldUpstreamRef": old, "newUpstreamRef": new, "localPackageRevisionRef": local}
    named = {field: {"name": name} for field, name in refs.items()}
    return {"type": "upgrade", "upgrade": {**named, "strategy": "resource-merge"}}


def revision_name(view: RepositoryView, path: str, workspace: str) -> str:
    """Return the name of a package revision's object: `<repository>.<path with dots>.<workspace>`."""
    directory, _, package = package_name(view, path).rpartition("/")
    return object_name(view.key.name, directory, package, workspace)


def removal_message(path: str) -> str:
    """Return the message of the commit that proposes a package's deletion."""
    return f"Delete {path}\n"


def upstream_label(pin: Pin) -> str:
    """Return how a person names a pinned upstream: `web/v2`, or a ref at a short commit."""
    return pin.label


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


_README = {"README.md": File.of(b"Created by reconciler\n")}


def start_branch(view: RepositoryView, inventory: Inventory) -> Iterator[StartBranch]:
    """Yield the commit that begins an empty repository that is registered with `createBranch`.

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
