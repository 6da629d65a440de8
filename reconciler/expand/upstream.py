"""The upstream of a set: does it exist, and what expressions see of it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from reconciler.api.porch import Upstream
from reconciler.ids import Lifecycle, ObjectName, Oid
from reconciler.inventory import Commit, Draft, Inventory, PackageRevision, PackageState, RepositoryView
from reconciler.refs import object_name

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


_NOBODY = Oid("0" * 40)
_UNKNOWN = Commit(_NOBODY, 0)


def assume_upstreams(inventory: Inventory) -> Inventory:
    """Return the inventory with each named upstream in its repository's view, so that sets can expand.

    Pure. For a check of manifests alone: what expands says nothing about whether upstreams exist,
    and must not be planned. Repositories that are not registered stay unknown.
    """
    views: dict[ObjectName, RepositoryView] = dict(inventory.repositories)
    named = [(pvs.key, pvs.manifest.spec.upstream) for pvs in inventory.sets]
    named += [(variant.key, variant.manifest.spec.upstream) for variant in inventory.variants]
    for key, upstream in named:
        view = views.get(ObjectName(key.namespace, (upstream and upstream.repo) or ""))
        if view is not None and upstream is not None and upstream.package:
            views[view.key] = _with(view, upstream, upstream.package)
    return replace(inventory, repositories=views)


def _with(view: RepositoryView, upstream: Upstream, package: str) -> RepositoryView:
    path = view.full_path(package)
    state = view.packages.get(path) or PackageState(path)
    published = (*state.published, _revision(path, upstream))
    names = [name for name in (upstream.tag, upstream.branch) if name]
    refs = dict.fromkeys(names, _UNKNOWN)
    return replace(
        view,
        packages={**view.packages, path: replace(state, published=published)},
        tags={**view.tags, **refs},
        branches={**view.branches, **refs},
    )


def _revision(path: str, upstream: Upstream) -> PackageRevision:
    number = upstream.revision or 0
    workspace = upstream.workspace_name or (f"v{number}" if number else upstream.tag or "v0")
    ref = f"refs/tags/{path}/{workspace}"
    return PackageRevision(path, workspace, number, Lifecycle.PUBLISHED, ref, _UNKNOWN, _NOBODY)
