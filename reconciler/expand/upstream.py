"""The upstream of a set: does it exist, and what expressions see of it."""

from collections.abc import Mapping
from typing import Any

from reconciler.api.porch import Upstream
from reconciler.inventory import Draft, PackageRevision, PackageState, RepositoryView
from reconciler.package_paths import object_name

LATEST = "kpt.dev/latest-revision"


def find_upstream(upstream: Upstream, view: RepositoryView | None) -> Mapping[str, Any] | None:
    """Return the metadata of the upstream's package revision object, None if there is no such revision.

    Only metadata: resolving the commit is the next stage's. A version range names no revision
    here, because names must not change when it moves: its metadata has no name.

    Source: porch packagevariantset_controller.go, getUpstreamPR.
    Differs: `revision` and `workspaceName` must name one revision (D9), and a workspace alone
    does not match every draft.
    """
    package = upstream.package or ""
    state = view.packages.get(view.full_path(package)) if view else None
    if view is None or state is None:
        return None
    if upstream.version:
        return _metadata(view, None) if state.published else None
    if upstream.tag or upstream.branch:
        floating = upstream.tag or upstream.branch or ""
        exists = _has_tag(floating, view, state) if upstream.tag else _has_branch(floating, view)
        return _metadata(view, _object_name(view, package, floating)) if exists else None
    return _numbered(upstream, view, state)


def describe_missing(upstream: Upstream) -> str:
    """Return Porch's message for an upstream that does not exist."""
    selector: object = upstream.tag or upstream.version or upstream.branch or upstream.revision or 0
    return (
        f"could not find upstream package revision '{upstream.package or ''}/{selector}'"
        f" in repo '{upstream.repo or ''}'"
    )


def _numbered(upstream: Upstream, view: RepositoryView, state: PackageState) -> Mapping[str, Any] | None:
    package = upstream.package or ""
    revisions: tuple[PackageRevision | Draft, ...] = (*state.published, *state.drafts)
    for revision in revisions:
        if _is_meant(upstream, revision):
            name = _object_name(view, package, revision.workspace)
            return _metadata(view, name, latest=revision == state.latest)
    if upstream.workspace_name and upstream.workspace_name == view.branch and not upstream.revision:
        return _metadata(view, _object_name(view, package, view.branch))
    return None


def _is_meant(upstream: Upstream, revision: PackageRevision | Draft) -> bool:
    number = revision.revision if isinstance(revision, PackageRevision) else 0
    if not upstream.revision and not upstream.workspace_name:
        return False
    return (not upstream.revision or upstream.revision == number) and (
        not upstream.workspace_name or upstream.workspace_name == revision.workspace
    )


def _has_tag(tag: str, view: RepositoryView, state: PackageState) -> bool:
    own = any(
        revision.ref.removeprefix("refs/tags/") == f"{state.path}/{tag}" for revision in state.published
    )
    return own or tag in view.tags


def _has_branch(branch: str, view: RepositoryView) -> bool:
    return branch == view.branch or branch in view.branches


def _object_name(view: RepositoryView, package: str, workspace: str) -> str:
    directory, _, name = package.strip("/").rpartition("/")
    return object_name(view.key.name, directory, name, workspace)


def _metadata(view: RepositoryView, name: str | None, *, latest: bool = False) -> Mapping[str, Any]:
    labels = {LATEST: "true"} if latest else {}
    named = {} if name is None else {"name": name}
    return {**named, "namespace": view.key.namespace, "labels": labels, "annotations": {}}
