"""Unrolling: from a set's targets to one context per variant."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from reconciler.api.meta import LabelSelector
from reconciler.api.porch import (
    REPOSITORY,
    ObjectSelector,
    PackageVariantSet,
    PackageVariantSetSpec,
    Target,
    VariantTemplate,
)
from reconciler.errors import Location
from reconciler.expand.findings import Finding
from reconciler.expand.selectors import SelectorError, compile_selector
from reconciler.ids import GroupKind, group_of
from reconciler.inventory import FieldPath, RepositoryView
from reconciler.reasons import Reason
from reconciler.snapshot import Snapshot, SnapshotObject

CLUSTERS = "reconciler.dev/clusters"
"""Annotation of a set: the clusters in whose snapshots its object selectors look, separated by commas."""
CLUSTER = "reconciler.dev/cluster"
"""Annotation that objects of such sets have in expressions: the cluster that they are in."""
_CRD = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")


class SelectedObject(NamedTuple):
    """What a selector selected, reduced to what expressions may see of it, and where it stands."""

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
        """Where it stands among what its selector selects: by name, as in Porch."""
        return self.name, self.namespace, self.cluster

    def as_input(self) -> Mapping[str, Any]:
        """Return the value of a CEL variable: metadata only, by Porch's reasons of safety."""
        return {
            "name": self.name,
            "namespace": self.namespace,
            "labels": self.labels,
            "annotations": self.annotations,
        }


@dataclass(frozen=True, slots=True)
class Context:
    """One variant to be: its defaults, its template, and the object that it is made for."""

    path: FieldPath
    repo_default: str
    package_default: str
    template: VariantTemplate | None = None
    selected: SelectedObject | None = None
    number: int = 0

    def target_input(self) -> Mapping[str, Any]:
        """Return the CEL variable `target`; Porch gives the two names where no object is selected."""
        if self.selected is None:
            return {"repo": self.repo_default, "package": self.package_default}
        return self.selected.as_input()


@dataclass(frozen=True, slots=True)
class TargetScope:
    """What a set may see: the Repositories of its namespace and the snapshot. Nothing of other namespaces.

    `clusters` are those whose objects it selects; empty for the ones of the snapshot itself.
    """

    namespace: str
    repositories: Mapping[str, RepositoryView]
    snapshot: Snapshot
    clusters: tuple[str, ...] = ()


def named_clusters(pvs: PackageVariantSet) -> tuple[str, ...]:
    """Return the clusters whose objects a set selects, sorted; none where it does not say."""
    text = (pvs.metadata.annotations or {}).get(CLUSTERS, "")
    return tuple(sorted({name.strip() for name in text.split(",") if name.strip()}))


class UnrollError(Exception):
    """A target cannot be unrolled; the whole set stalls."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


def unroll(spec: PackageVariantSetSpec, visible: TargetScope) -> tuple[Context, ...]:
    """Return a context per variant, in the order of the targets, selected objects by name.

    Deterministic: the order of the snapshot does not matter. Nothing is deduplicated here.

    Raises:
        UnrollError: A selector is invalid, or its kind is not served by the cluster.

    Source: porch packagevariantset_controller.go, unrollDownstreamTargets.
    Differs: `objectSelector.name` is honoured.
    """
    package = (spec.upstream and spec.upstream.package) or ""
    return tuple(
        context
        for number, target in enumerate(spec.targets or ())
        for context in _unroll_target(target, number, package, visible)
    )


def _unroll_target(target: Target, number: int, package: str, visible: TargetScope) -> Iterator[Context]:
    path: FieldPath = ("spec", "targets", number)
    if target.repositories:
        for index, repository in enumerate(target.repositories):
            base = (*path, "repositories", index)
            names = repository.package_names
            for place, name in enumerate(names or (package,)):
                where = (*base, "packageNames", place) if names else base
                yield Context(where, repository.name or "", name, target.template, number=number)
        return
    for selected in _select(target, path, visible):
        yield Context(path, selected.name, package, target.template, selected, number)


def _select(target: Target, path: FieldPath, visible: TargetScope) -> tuple[SelectedObject, ...]:
    if target.repository_selector is not None:
        where = (*path, "repositorySelector")
        return _filter(_repositories(visible), target.repository_selector, where)
    if target.object_selector is None:
        return ()
    where = (*path, "objectSelector")
    return _filter(_objects(target.object_selector, where, visible), target.object_selector, where)


def _repositories(visible: TargetScope) -> Iterator[SelectedObject]:
    for name, view in visible.repositories.items():
        metadata = view.manifest.metadata
        yield SelectedObject(
            name,
            visible.namespace,
            metadata.labels or {},
            metadata.annotations or {},
            view.source.location,
            view.source.time,
        )


def _objects(selector: ObjectSelector, path: FieldPath, visible: TargetScope) -> Iterator[SelectedObject]:
    api_version, kind = selector.api_version or "", selector.kind or ""
    if (api_version, kind) == (REPOSITORY, "Repository"):
        yield from _named(_repositories(visible), selector.name)
        return
    for cluster in visible.clusters or ("",):
        snapshot = visible.snapshot.exactly(cluster) if cluster else visible.snapshot
        if not is_served(snapshot, api_version, kind, visible.namespace):
            raise UnrollError(_no_match(api_version, kind, path, snapshot))
        found = snapshot.of_kind(api_version, kind)
        mine = (item for item in found if item.namespace in {visible.namespace, ""})
        yield from _named((_selected(item, snapshot.time, cluster) for item in mine), selector.name)


def _named(objects: Iterator[SelectedObject], name: str | None) -> Iterator[SelectedObject]:
    return (item for item in objects if not name or item.name == name)


def _selected(item: SnapshotObject, time: int, cluster: str) -> SelectedObject:
    """Return what is seen of an object; its annotation says which cluster it is in, where that is asked."""
    notes = {**item.annotations, CLUSTER: cluster} if cluster else item.annotations
    return SelectedObject(item.name, item.namespace, item.labels, notes, item.location, time, cluster)


def _filter(
    objects: Iterator[SelectedObject], selector: LabelSelector, path: FieldPath
) -> tuple[SelectedObject, ...]:
    try:
        matches = compile_selector(selector)
    except SelectorError as error:
        raise UnrollError(Finding((*path, *error.field), str(error))) from error
    return tuple(sorted((item for item in objects if matches(item.labels)), key=lambda item: item.order))


def is_served(snapshot: Snapshot, api_version: str, kind: str, namespace: str) -> bool:
    """Tell whether the cluster has this kind, by the best evidence that the snapshot holds.

    In this order: the recorded list of served APIs; an object of the kind; a complete listing
    of it; its CustomResourceDefinition.
    """
    if not snapshot.present:
        return False
    if snapshot.served is not None:
        return (api_version, kind) in snapshot.served
    if snapshot.of_kind(api_version, kind):
        return True
    group = group_of(api_version)
    if any(snapshot.is_complete(GroupKind(group, kind), where) for where in (namespace, "")):
        return True
    definitions = (item.body.get("spec") for item in snapshot.of_kind(*_CRD))
    return any(_defines(spec, group, kind) for spec in definitions if isinstance(spec, Mapping))


def _defines(spec: Mapping[str, Any], group: str, kind: str) -> bool:
    names = spec.get("names")
    return spec.get("group") == group and isinstance(names, Mapping) and names.get("kind") == kind


def _no_match(api_version: str, kind: str, path: FieldPath, snapshot: Snapshot) -> Finding:
    hint = _no_match_hint(snapshot, GroupKind(group_of(api_version), kind))
    message = f'no matches for kind "{kind}" in version "{api_version}"'
    return Finding(path, message, Reason.NO_MATCHING_TARGETS, hint)


def _no_match_hint(snapshot: Snapshot, kind: GroupKind) -> str:
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
