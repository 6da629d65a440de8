"""Unroll the targets of a set into one context per variant."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import Struct

from reconciler.api.meta import Predicate, compile_selector
from reconciler.api.porch import (
    REPOSITORY,
    ObjectSelector,
    PackageVariantSet,
    PackageVariantSetSpec,
    Target,
    VariantTemplate,
)
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.expand.findings import ExpansionError, Finding
from reconciler.inventory.inventory import FieldPath, RepositoryView
from reconciler.inventory.snapshot import Snapshot
from reconciler.names.ids import GroupKind, group_of

CLUSTERS = "reconciler.dev/clusters"
"""Annotation of a set: the clusters that its object selectors search, separated by commas."""
CLUSTER = "reconciler.dev/cluster"
"""Annotation that expressions of such a set see on an object: its cluster."""


class SelectedObject(NamedTuple):
    """A selected object, reduced to the metadata that expressions may see, and its location."""

    name: str
    namespace: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    location: Location
    time: int = 0
    cluster: str = ""

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{where} ({self.location})"

    @property
    def order(self) -> tuple[str, str, str]:
        """Sort key among the objects of one selector: by name, as in Porch."""
        return self.name, self.namespace, self.cluster

    def as_input(self) -> Mapping[str, Any]:
        """Return the value of a CEL variable: metadata only, for safety, as in Porch."""
        return {
            "name": self.name,
            "namespace": self.namespace,
            "labels": self.labels,
            "annotations": self.annotations,
        }


class Context(Struct, frozen=True):
    """The input of one variant: defaults, template and selected object."""

    path: FieldPath
    repo_default: str
    package_default: str
    template: VariantTemplate | None = None
    selected: SelectedObject | None = None
    number: int = 0

    def __str__(self) -> str:
        return str(self.selected or f"{self.repo_default}/{self.package_default}")

    def target_input(self) -> Mapping[str, Any]:
        """Return the CEL variable `target`: the selected object, else both names, as in Porch."""
        if self.selected is None:
            return {"repo": self.repo_default, "package": self.package_default}
        return self.selected.as_input()


class TargetScope(Struct, frozen=True):
    """The Repositories and the snapshot that a set selects from, limited to its namespace.

    `clusters` are the clusters of the snapshot to search; empty for the snapshot itself.
    """

    namespace: str
    repositories: Mapping[str, RepositoryView]
    snapshot: Snapshot
    clusters: tuple[str, ...] = ()


def named_clusters(pvs: PackageVariantSet) -> tuple[str, ...]:
    """Return the clusters that a set names for its object selectors, sorted."""
    text = (pvs.metadata.annotations or {}).get(CLUSTERS, "")
    return tuple(sorted({name.strip() for name in text.split(",") if name.strip()}))


def unroll(spec: PackageVariantSetSpec, scope: TargetScope) -> tuple[Context, ...]:
    """Return a context per variant, in the order of the targets, selected objects by name.

    Deterministic: the order of the snapshot does not matter. Nothing is deduplicated here.

    Raises:
        ExpansionError: The kind of a selector is not served by the cluster.

    Source: porch packagevariantset_controller.go, unrollDownstreamTargets.
    Differs: `objectSelector.name` is honoured.
    """
    package = (spec.upstream and spec.upstream.package) or ""
    return tuple(
        context
        for number, target in enumerate(spec.targets or ())
        for context in _unroll_target(target, number, package, scope)
    )


def _unroll_target(target: Target, number: int, package: str, scope: TargetScope) -> Iterator[Context]:
    path: FieldPath = ("spec", "targets", number)
    if target.repositories:
        for index, repository in enumerate(target.repositories):
            base = (*path, "repositories", index)
            # Without package names the downstream package is called like its upstream.
            names = repository.package_names
            for position, name in enumerate(names or (package,)):
                where = (*base, "packageNames", position) if names else base
                yield Context(where, repository.name or "", name, target.template, number=number)
        return
    for selected in _select(target, path, scope):
        yield Context(path, selected.name, package, target.template, selected, number)


def _select(target: Target, path: FieldPath, scope: TargetScope) -> tuple[SelectedObject, ...]:
    selected: Iterator[SelectedObject] = iter(())
    if target.repository_selector is not None:
        selected = _repositories(scope, compile_selector(target.repository_selector))
    elif target.object_selector is not None:
        matches = compile_selector(target.object_selector)
        selected = _objects(target.object_selector, (*path, "objectSelector"), scope, matches)
    return tuple(sorted(selected, key=lambda item: item.order))


def _repositories(scope: TargetScope, matches: Predicate) -> Iterator[SelectedObject]:
    objects = map(selected_repository, scope.repositories.values())
    return (item for item in objects if matches(item.labels))


def selected_repository(view: RepositoryView) -> SelectedObject:
    """Return a Repository as expressions see it."""
    metadata, source = view.manifest.metadata, view.source
    labels, annotations, key = metadata.labels or {}, metadata.annotations or {}, view.key
    return SelectedObject(key.name, key.namespace, labels, annotations, source.location, source.time)


def _objects(
    selector: ObjectSelector, path: FieldPath, scope: TargetScope, matches: Predicate
) -> Iterator[SelectedObject]:
    api_version, kind, name = selector.api_version or "", selector.kind or "", selector.name
    if (api_version, kind) == (REPOSITORY, "Repository"):
        yield from (item for item in _repositories(scope, matches) if not name or item.name == name)
        return
    # Cluster-scoped objects have no namespace and are visible to every set.
    visible = (scope.namespace, "")
    for cluster in scope.clusters or ("",):
        snapshot = scope.snapshot.exactly(cluster) if cluster else scope.snapshot
        if not snapshot.serves(api_version, kind, scope.namespace):
            message = f'no matches for kind "{kind}" in version "{api_version}"'
            hint = _no_match_hint(api_version, snapshot, GroupKind(group_of(api_version), kind))
            raise ExpansionError(Finding(path, message, Reason.NO_MATCHING_TARGETS, hint))
        # A snapshot may have ten times as many objects as a set selects: only those become values.
        for item in snapshot.of_kind(api_version, kind):
            if matches(item.labels) and item.namespace in visible and (not name or item.name == name):
                # Expressions see an object with the annotation of its cluster if the set names clusters.
                notes = {**item.annotations, CLUSTER: cluster} if cluster else item.annotations
                yield SelectedObject(
                    item.name, item.namespace, item.labels, notes, item.location, snapshot.time, cluster
                )


def _no_match_hint(api_version: str, snapshot: Snapshot, kind: GroupKind) -> str:
    if snapshot.present and (versions := sorted(snapshot.versions_of(kind) or ())):
        version = api_version.rpartition("/")[2]
        return (
            f"The snapshot knows it as {' and '.join(versions)}: select that. If the cluster serves "
            f"{api_version} too, import it so: --kinds {kind.kind}.{version}.{kind.group}."
        )
    if snapshot.present:
        return (
            f"Install the CustomResourceDefinition of {kind} in the cluster, or list the kind when the "
            f"snapshot is imported: --kinds {kind}."
        )
    if snapshot.clusters:
        names = ",".join(sorted(snapshot.clusters))
        return f"Say in which clusters it selects: annotate the set with {CLUSTERS}: {names}"
    of_cluster = f" --cluster {snapshot.cluster}" if snapshot.cluster else ""
    return (
        f"There is no snapshot in {snapshot.path}: import one with "
        f"`reconciler snapshot import{of_cluster} --kinds {kind}`."
    )
