"""Find the upstream of a set, as expressions see it, or assume it where no repository is read."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from reconciler.api.kptfile import KPTFILE
from reconciler.api.porch import PLAIN_PACKAGES, PackageVariantSet, Upstream
from reconciler.base.suggestions import suggest
from reconciler.inventory.inventory import (
    Draft,
    FieldMarks,
    FieldPath,
    Inventory,
    PackageRevision,
    PackageState,
    RepositoryView,
    Sourced,
    declared_upstreams,
)
from reconciler.names.ids import Lifecycle, ObjectName, Oid
from reconciler.names.objects import Commit
from reconciler.names.refs import TAGS, is_within, object_name, parent_directories, relative_package

LATEST = "kpt.dev/latest-revision"
_MOST = 5
"""Revisions that a hint names."""
_NULL_OID = Oid("0" * 40)
_NULL_COMMIT = Commit(_NULL_OID, 0)


def find_upstream(upstream: Upstream, view: RepositoryView | None) -> Mapping[str, Any] | None:
    """Return the metadata of the upstream's package revision object, None if there is no such revision.

    The commit is resolved later. The metadata of a version range has no name, because names of variants
    must not change when the range resolves to another revision.

    Source: porch packagevariantset_controller.go, getUpstreamPR.
    Differs: `revision` and `workspaceName` must name one revision (D9), and a workspace alone
    does not match every draft.
    """
    package = upstream.package or ""
    state = view.upstream_at(view.full_path(package)) if view else None
    if view is None or state is None:
        return None
    if upstream.version:
        return _metadata(view, None) if state.published else None
    if upstream.tag or upstream.branch:
        floating = upstream.tag or upstream.branch or ""
        branches = (view.branch, *view.branches)
        exists = _has_tag(floating, view, state) if upstream.tag else floating in branches
        return _metadata(view, _object_name(view, package, floating)) if exists else None
    return _numbered(upstream, view, state)


class _ListedMarks(NamedTuple):
    """Positions of a set's fields, in which the upstream is one of its list."""

    marks: FieldMarks
    number: int

    def mark(self, path: FieldPath) -> tuple[int, int]:
        """Return the position of a field, of the list where it is one of the upstream."""
        is_upstream = path[:2] == ("spec", "upstream")
        return self.marks.mark(("spec", "upstreams", self.number, *path[2:]) if is_upstream else path)


def single_sets(pvs: Sourced[PackageVariantSet]) -> tuple[Sourced[PackageVariantSet], ...]:
    """Return a set as one for each of its upstreams, with the fields of that upstream where they are."""
    spec, source = pvs.manifest.spec, pvs.source
    if spec.upstreams is None:
        return (pvs,)
    singles = []
    for index, upstream in enumerate(spec.upstreams):
        single = spec.model_copy(update={"upstream": upstream, "upstreams": None})
        marks = _ListedMarks(source.marks, index) if source.marks is not None else None
        manifest = pvs.manifest.model_copy(update={"spec": single})
        singles.append(replace(pvs, manifest=manifest, source=replace(source, marks=marks)))
    return tuple(singles)


def describe_missing(upstream: Upstream) -> str:
    """Return Porch's message for a missing upstream."""
    selector: object = upstream.tag or upstream.version or upstream.branch or upstream.revision or 0
    return (
        f"could not find upstream package revision '{upstream.package or ''}/{selector}'"
        f" in repo '{upstream.repo or ''}'"
    )


def existing_upstreams(
    upstream: Upstream, view: RepositoryView, views: Iterable[RepositoryView]
) -> tuple[str, str]:
    """Return a description of the thing in place of a missing upstream, or "", and the hint."""
    package = upstream.package or ""
    state = view.upstream_at(view.full_path(package))
    if state is None:
        existing = (relative_package(path, view.directory) for path in view.packages)
        return find_in_place(package, view, views) or ("", missing_package(package, existing))
    numbers = sorted(revision.revision for revision in state.published if revision.revision > 0)
    if not numbers:
        return "", "Publish a revision of it, or set spec.upstream.workspaceName or branch."
    return "", f"Ask for one that is published: {', '.join(f'v{number}' for number in numbers[-_MOST:])}."


def find_in_place(
    package: str, view: RepositoryView, views: Iterable[RepositoryView]
) -> tuple[str, str] | None:
    """Describe the thing at the path of a package that a Repository does not have, with the next step.

    Args:
        package: The package as the manifest names it.
        view: The Repository that it names.
        views: Every Repository: a more specific one of the same Git repository may have the package.
    """
    path = view.full_path(package)
    inner = [other for other in views if other.url == view.url and is_within(path, other.directory)]
    closest = max((view, *inner), key=lambda candidate: len(candidate.directory))
    if path in closest.packages:
        name = relative_package(path, closest.directory)
        what = (
            f"{package} is a package of Repository {closest.key}, which has the directory {closest.directory}"
        )
        return what, f"Set spec.upstream.repo to {closest.key.name} and spec.upstream.package to {name}."
    for above in parent_directories(path):
        if above in closest.packages:
            what = f"{package} is inside of package {relative_package(above, closest.directory)}"
            return what, "Name that package: what is inside of it is a part of it, and has no revisions."
    if view.root is not None and not view.packages:
        return f"{KPTFILE} makes the whole repository one package", 'Set spec.upstream.package to ".".'
    if package and path in closest.directories:
        hint = (
            f"Make it one: `kpt pkg init {path}` in a clone of that repository, commit and tag;"
            f' or annotate Repository {closest.key} with {PLAIN_PACKAGES}: "true", and name a branch or tag.'
        )
        return f"{package} is a directory without a Kptfile, and so no package", hint
    return None


def missing_package(name: str, existing: Iterable[str]) -> str:
    """Return the hint for a package that is not there, which the plan itself may still make."""
    suggestion = suggest(name, existing)
    return f"Correct the name, or publish it first: there is no package {name} yet. {suggestion}".rstrip()


def _numbered(upstream: Upstream, view: RepositoryView, state: PackageState) -> Mapping[str, Any] | None:
    package = upstream.package or ""
    revisions: tuple[PackageRevision | Draft, ...] = (*state.published, *state.drafts)
    for revision in revisions:
        if _matches(upstream, revision):
            name = _object_name(view, package, revision.workspace)
            return _metadata(view, name, latest=revision == state.latest)
    # Porch names the package revision of the main branch after that branch.
    if upstream.workspace_name and upstream.workspace_name == view.branch and not upstream.revision:
        return _metadata(view, _object_name(view, package, view.branch))
    return None


def _matches(upstream: Upstream, revision: PackageRevision | Draft) -> bool:
    number = revision.revision if isinstance(revision, PackageRevision) else 0
    if not upstream.revision and not upstream.workspace_name:
        return False
    return (not upstream.revision or upstream.revision == number) and (
        not upstream.workspace_name or upstream.workspace_name == revision.workspace
    )


def _has_tag(tag: str, view: RepositoryView, state: PackageState) -> bool:
    # A tag of the package, as web/stable, or of the whole repository.
    return tag in view.tags or any(r.ref == f"{TAGS}{state.path}/{tag}" for r in state.published)


def _object_name(view: RepositoryView, package: str, workspace: str) -> str:
    directory, _, name = relative_package(view.full_path(package), view.directory).rpartition("/")
    return object_name(view.key.name, directory, name, workspace)


def _metadata(view: RepositoryView, name: str | None, *, latest: bool = False) -> Mapping[str, Any]:
    labels = {LATEST: "true"} if latest else {}
    named = {} if name is None else {"name": name}
    return {**named, "namespace": view.key.namespace, "labels": labels, "annotations": {}}


def assume_upstreams(inventory: Inventory) -> Inventory:
    """Return the inventory with every named upstream in its repository's view, so that sets can expand.

    For a check of manifests alone: the result does not prove that upstreams exist and must not be
    planned. Repositories that are not registered stay unknown.
    """
    views: dict[ObjectName, RepositoryView] = dict(inventory.repositories)
    for owner, upstream in declared_upstreams(inventory.sets, inventory.variants):
        view = views.get(ObjectName(owner.namespace, upstream.repo or ""))
        if view is not None and upstream.package:
            path = view.full_path(upstream.package)
            state = view.upstream_at(path) or PackageState(path)
            state = replace(state, published=(*state.published, _revision(path, upstream)))
            names = [name for name in (upstream.tag, upstream.branch) if name]
            refs = dict.fromkeys(names, _NULL_COMMIT)
            views[view.key] = replace(
                view,
                packages={**view.packages, path: state} if path else view.packages,
                root=view.root if path else state,
                tags={**view.tags, **refs},
                branches={**view.branches, **refs},
            )
    return replace(inventory, repositories=views)


def _revision(path: str, upstream: Upstream) -> PackageRevision:
    number = upstream.revision or 0
    workspace = upstream.workspace_name or (f"v{number}" if number else upstream.tag or "v0")
    ref = f"refs/tags/{path}/{workspace}"
    return PackageRevision(path, workspace, number, Lifecycle.PUBLISHED, ref, _NULL_COMMIT, _NULL_OID)
