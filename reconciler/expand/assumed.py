"""Expansion without reading repositories: every upstream that a manifest names is assumed to exist."""

from dataclasses import replace

from reconciler.api.porch import Upstream
from reconciler.ids import Lifecycle, ObjectName, Oid
from reconciler.inventory import Commit, Inventory, PackageRevision, PackageState, RepositoryView

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
