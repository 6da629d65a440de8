"""Commits of the plan: messages in Porch's form, the first commit of a repository."""

import re
from collections.abc import Iterator, Mapping, Sequence

import orjson

from reconciler.base.wording import json_text, plural
from reconciler.inventory.authors import repository_commits
from reconciler.inventory.inventory import Inventory, RepositoryView
from reconciler.names.objects import File, Signature, commit_bytes, object_id, tree_id
from reconciler.names.refs import object_name
from reconciler.plan.changes import StartBranch
from reconciler.resolve.ownership import package_name

CLONE = "Creating new revision by cloning"
EDIT = "Creating new revision by copying previous revision"
UPGRADE = "Upgrading revision"


def commit_message(
    title: str, path: str, workspace: str, task: Mapping[str, object], labels: Mapping[str, str] | None = None
) -> str:
    """Return a draft commit's message: the title, two blank lines, the `kpt:` line.

    Source: porch pkg/externalrepo/git/commit.go, AnnotateCommitMessage.
    Differs: the line has the labels of the revision, which Porch keeps in a cluster.
    """
    return f"{title}\n\n\n{_kpt_line(path, workspace, labels, task=dict(task))}\n"


def _kpt_line(path: str, workspace: str, labels: Mapping[str, str] | None, **more: object) -> str:
    annotation = {"package": path, "workspaceName": workspace, "revision": "0", **more}
    if labels:
        annotation["labels"] = dict(sorted(labels.items()))
    return f"kpt:{json_text(orjson.dumps(annotation).decode())}"


def with_lines(message: str, lines: Sequence[str]) -> str:
    """Return a message with lines between its title and the `kpt:` lines at its end."""
    title, kpt = message.split("\n\n\n", 1)
    return "\n\n".join([title, "\n".join(lines), kpt]) if lines else message


def group_message(
    packages: Mapping[str, str],
    conflicts: Sequence[str] = (),
    labels: Mapping[str, Mapping[str, str] | None] | None = None,
) -> str:
    """Return the message of a commit on a group's branch: one `kpt:` line for each package, sorted.

    Args:
        packages: The workspace of each package by its full path.
        conflicts: The lines that name the conflicts of the packages.
        labels: The labels of the packages.
    """
    count = len(packages)
    lines = [_kpt_line(path, packages[path], (labels or {}).get(path)) for path in sorted(packages)]
    message = "\n".join([f"Draft of {plural(count, 'package')}", "", "", *lines, ""])
    return with_lines(message, sorted(conflicts))


def relabelled(message: str, workspace: str) -> str:
    """Return a draft's message for another workspace of the same package."""
    return re.sub(r'"workspaceName":"[^"]*"', f'"workspaceName":"{workspace}"', message, count=1)


def clone_task(upstream: str) -> dict[str, object]:
    """Return the task of a first creation from the named upstream package revision."""
    return {"type": "clone", "clone": {"upstreamRef": {"upstreamRef": {"name": upstream}}}}


def edit_task(source: str) -> dict[str, object]:
    """Return the task of a draft made from the named published revision of the same package."""
    return {"type": "edit", "edit": {"sourceRef": {"name": source}}}


def upgrade_task(old: str, new: str, local: str) -> dict[str, object]:
    """Return the task of a draft that brings a new upstream revision in."""
    refs = {"oldUpstreamRef": old, "newUpstreamRef": new, "localPackageRevisionRef": local}
    named = {field: {"name": name} for field, name in refs.items()}
    return {"type": "upgrade", "upgrade": {**named, "strategy": "resource-merge"}}


def revision_name(view: RepositoryView, path: str, workspace: str) -> str:
    """Return the name of a package revision's object: `<repository>.<path with dots>.<workspace>`."""
    directory, _, package = package_name(view, path).rpartition("/")
    return object_name(view.key.name, directory, package, workspace)


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
    views = [v for v in inventory.views_of(view.url) if v.branch == view.branch and v.former is None]
    time = min(v.source.time for v in views)
    commits = repository_commits(inventory.views_of(view.url), inventory.policy.commits)
    author = Signature(*commits.author(""), time)
    committer = Signature(commits.name, commits.email, time)
    message = f"Initial commit: Creating {view.branch} branch\n"
    oid = object_id("commit", commit_bytes(tree_id(_README), (), author, committer, message))
    yield StartBranch(f"refs/heads/{view.branch}", _README, oid, message, time)
