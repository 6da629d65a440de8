"""Judge what variants propose, against main and the snapshot of each cluster (D44). Pure."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.admission.cluster import CRD, DECIDING, Cluster, Definition, definitions_of, identity_of
from reconciler.admission.judge import Judge, ObjectChange
from reconciler.admission.judgement import AdmissionJudgement, AdmissionVerdict, worst_first
from reconciler.admission.policies import find_unasked
from reconciler.base.defects import DefectError, guard
from reconciler.base.lazy import regex
from reconciler.base.values import LazyMapping
from reconciler.functions.pipeline import waits_for_functions
from reconciler.inventory.inventory import Inventory, RepositoryView
from reconciler.inventory.snapshot import defined_kind
from reconciler.names.filled import changed_paths, masked_digest
from reconciler.names.ids import GroupKind, PackageKey, group_of
from reconciler.names.objects import Files
from reconciler.names.problems import defect_problem
from reconciler.names.substitution import OwnValues
from reconciler.plan.impact import ResourceId, resources_in, value_digest
from reconciler.render.merging import Contents
from reconciler.render.rendered import Package, Rendered, RenderedVariant
from reconciler.render.sharing import set_values
from reconciler.resolve.fleet import ResolvedFleet
from reconciler.resolve.resolution import ResolvedVariant

_SUFFIXES = (".yaml", ".yml", ".json")
_MASK = "\0"
_EMPTY = hashlib.sha256().digest()
_KIND = regex(rb"kind[\"']?:\s*[\"']?(\w+)")
_Sides = tuple[Files, Files]


def judge_packages(
    inventory: Inventory, fleet: ResolvedFleet, rendered: Rendered, contents: Contents
) -> Rendered:
    """Return the packages with what their clusters would answer to them. Order-free.

    Only objects that a proposal creates, changes or removes are judged; equal ones of a fleet once. A bug of
    ours is the `defect` of its package.
    """
    reader = _Reader()
    clusters = _Clusters(inventory, _Mains(inventory, contents, reader))
    unjudged: set[tuple[str, str, str]] = set()
    searched: dict[str, set[GroupKind]] = {}
    # Without any such list, nothing but Kubernetes itself is asked about clusters that have no snapshot.
    is_listed = inventory.policy.admission.snapshots or inventory.snapshot.lists_any(DECIDING)
    judged: dict[Any, RenderedVariant] = {}
    for resolved in fleet.resolution.variants:
        outcome = rendered.variants.get(resolved.variant.key)
        view = inventory.repositories.get(resolved.view)
        if outcome is None or view is None or not view.deployment:
            continue
        sides = _sides(resolved, outcome, view, inventory, contents)
        if sides is None or not any(sides):
            continue
        names = (resolved.downstream.path, resolved.downstream.path.rpartition("/")[2], view.key.name)
        own_values = OwnValues.of((*names, resolved.variant.key.name, *set_values(resolved.variant.spec)))
        cluster = clusters.of(view.cluster)
        if cluster.unknown and (cluster.snapshot.present or is_listed):
            unjudged.add(("Snapshot", cluster.name, cluster.unknown))
        try:
            with guard(f"the objects of {resolved.downstream.path}"):
                requests = reader.requests(sides, own_values)
                judgements = worst_first(_judge(cluster, requests, own_values, reader))
                for kind in {m.kind for m in requests.members} - searched.setdefault(cluster.name, set()):
                    searched[cluster.name].add(kind)
                    for decider in find_unasked(kind, cluster):
                        unjudged.add((decider.partition(" ")[0], cluster.name, f"{decider} is not asked"))
        except DefectError as error:
            variant = resolved.variant
            problem = defect_problem(error, variant.source.location, variant.owner)
            judged[variant.key] = replace(outcome, defect=problem)
            continue
        if judgements:
            judged[resolved.variant.key] = replace(outcome, judgements=judgements)
    silent = tuple(
        AdmissionJudgement(AdmissionVerdict.NOT_JUDGED, rule, why, name)
        for rule, name, why in sorted(unjudged)
    )
    return replace(rendered, variants={**rendered.variants, **judged}, unjudged=silent)


def _sides(
    resolved: ResolvedVariant,
    outcome: RenderedVariant,
    view: RepositoryView,
    inventory: Inventory,
    contents: Contents,
) -> _Sides | None:
    """Return the package as main and its proposal have it; None where either is not read, or nothing is new.

    Of one that moves, main has it at its former place.
    """
    package = view.packages.get(resolved.downstream.path)
    main = package.main_tree if package is not None else None
    before = contents.get(main) if main is not None else {}
    after = outcome.merged if isinstance(outcome.merged, Package) else outcome.fresh
    draft = resolved.draft
    if draft is not None and draft.append_only and outcome.merged is None:
        files, tree = contents.get(draft.tree) if draft.tree else None, draft.tree
    elif isinstance(after, Package):
        files, tree = after.files or contents.get(after.tree), after.tree
        if files is not None and waits_for_functions(after.conflicts, files):
            return None
    else:
        return None
    if before is None or files is None or tree == main:
        return None
    record = inventory.records.get(resolved.variant.key)
    if record is not None and (record.url, record.path) != resolved.downstream:
        former = inventory.view_of(PackageKey(record.url, record.path))
        place = former.packages.get(record.path) if former is not None else None
        if former is not None and former.cluster == view.cluster and place is not None and place.main_tree:
            before = {**{f"\0{p}": file for p, file in contents.get(place.main_tree, {}).items()}, **before}
    return before, files


def _judge(
    cluster: Cluster, requests: "_Requests", own_values: OwnValues, reader: "_Reader"
) -> Iterator[AdmissionJudgement]:
    def fill(value: Any) -> Any:
        return _filled(value, own_values)

    def proposed() -> Mapping[GroupKind, Definition]:
        return requests.proposed | dict(definitions_of(map(fill, requests.definitions)))

    judge = Judge(cluster, LazyMapping(proposed) if requests.definitions else requests.proposed)
    governed = {kind for kind in requests.kinds if judge.governs(kind)}
    for request in requests.members:
        if request.is_plain and request.kind not in governed:
            # What decides here is equal for all packages that differ in their own names alone.
            for masked in reader.judgements(request, cluster):
                named = own_values.fill_text(masked.object)
                text = own_values.fill_text(str(masked.message))
                yield replace(masked, cluster=cluster.name, object=named, message=text)
            if request.kind == CRD and request.new is not None and cluster.snapshot.stored:
                yield from judge.judge_stored(fill(request.new))
        else:
            change = ObjectChange(fill(request.old), fill(request.new))
            if request.kind == CRD:
                yield from judge.judge(change)
                continue
            for judgement in reader.governed(change, request.kind, judge):
                yield replace(judgement, cluster=cluster.name)


class _Masked(dict[str, Any]):
    """An object with the places of own values, which only the fields `masked` have."""

    masked: frozenset[str]


def _is_of(value: Mapping[str, Any], kind: GroupKind) -> bool:
    identity = identity_of(value)
    return identity is not None and identity[0] == kind


def _filled(value: Mapping[str, Any] | None, own_values: OwnValues) -> Mapping[str, Any] | None:
    """Return an object with its own values; what has none is shared."""
    if not isinstance(value, _Masked) or not value.masked:
        return value
    return {key: own_values.fill_value(part) if key in value.masked else part for key, part in value.items()}


def _masked(value: Mapping[str, Any], own_values: OwnValues) -> _Masked:
    masked = _Masked(own_values.mask_value(value))
    pairs = ((key, part, value.get(key)) for key, part in masked.items())
    masked.masked = frozenset(key for key, part, before in pairs if part is not before and part != before)
    return masked


# Objects of packages


class _Member(Struct, frozen=True, eq=False):
    """A request with the places of own values; without `is_plain` they are in what names its kind."""

    kind: GroupKind
    old: Mapping[str, Any] | None
    new: Mapping[str, Any] | None
    is_plain: bool


class _Requests(Struct, frozen=True):
    """The requests of equal changes, and the definitions of their kinds, those with own values apart."""

    members: tuple[_Member, ...] = ()
    kinds: frozenset[GroupKind] = frozenset()
    """The kinds of the members, but for those with own values."""
    proposed: dict[GroupKind, Definition] = field(default_factory=dict)
    definitions: tuple[Mapping[str, Any], ...] = ()


class _Reader(Struct):
    """Reads objects; what is equal but for own values once, which most packages of a fleet share."""

    _files: dict[bytes, Mapping[ResourceId, _Masked]] = field(default_factory=dict)
    _requests: dict[bytes, _Requests] = field(default_factory=dict)
    _judgements: dict[tuple[int, object], tuple[AdmissionJudgement, ...]] = field(default_factory=dict)
    _governing: dict[str, bytes] = field(default_factory=dict)
    _governed: dict[tuple[bytes, bytes], tuple[AdmissionJudgement, ...]] = field(default_factory=dict)

    def requests(self, sides: _Sides, own_values: OwnValues) -> _Requests:
        """Return the objects that differ between main and a proposal."""
        parts: list[list[tuple[bytes, str]]] = [[], []]
        digest = hashlib.sha256()
        for path in (path for path in changed_paths(*sides) if path.endswith(_SUFFIXES)):
            for package, side in zip(sides, parts, strict=True):
                there = path in package
                side.append((masked_digest(package, path, own_values) if there else _EMPTY, path))
                digest.update(side[-1][0])
        key = digest.digest()
        if key not in self._requests:
            old, new = (
                {
                    resource: value
                    for masked, path in side
                    if path in package
                    for resource, value in self._read(masked, package, path, own_values).items()
                }
                for package, side in zip(sides, parts, strict=True)
            )
            self._requests[key] = _compared(old, new)
        return self._requests[key]

    def _read(
        self, digest: bytes, files: Files, path: str, own_values: OwnValues
    ) -> Mapping[ResourceId, _Masked]:
        if digest not in self._files:
            # Masked data is no YAML, so objects are read before names are masked.
            self._files[digest] = {
                ResourceId(*map(own_values.mask_text, resource)): _masked(value, own_values)
                for resource, value in resources_in(files[path].data)
                if resource.name
            }
        return self._files[digest]

    def objects(self, file: "_MainFile", kind: GroupKind) -> Iterator[Mapping[str, Any]]:
        """Yield the objects of a kind that a file has."""
        for masked in self._read(file.digest, file.files, file.path, file.own_values).values():
            # What is of another kind is not filled, unless its kind itself has own values.
            if masked.masked.isdisjoint(("apiVersion", "kind")) and not _is_of(masked, kind):
                continue
            if (value := _filled(masked, file.own_values)) is not None and _is_of(value, kind):
                yield value

    def governed(self, change: ObjectChange, kind: GroupKind, judge: Judge) -> tuple[AdmissionJudgement, ...]:
        """Return what a cluster answers to a change of an object; what decides alike is asked once."""
        name = judge.cluster.name
        if name not in self._governing:
            self._governing[name] = value_digest(judge.cluster.governing)
        definition = judge.proposed.get(kind)
        facts = [change.old, change.new, definition.spec if definition is not None else None]
        facts += judge.cluster.defining(kind)
        key = self._governing[name], value_digest(facts)
        if key not in self._governed:
            self._governed[key] = tuple(judge.judge(change))
        return self._governed[key]

    def judgements(self, request: _Member, cluster: Cluster) -> tuple[AdmissionJudgement, ...]:
        """Return what any cluster of this version answers to a request, with the places of own values."""
        key = (id(request), cluster.version)
        if key not in self._judgements:
            blank = Cluster("", replace(cluster.snapshot, objects={}, served=None))
            self._judgements[key] = tuple(Judge(blank).judge(ObjectChange(request.old, request.new)))
        return self._judgements[key]


def _compared(
    old: Mapping[ResourceId, Mapping[str, Any]], new: Mapping[ResourceId, Mapping[str, Any]]
) -> _Requests:
    members = []
    for resource in sorted(old.keys() | new.keys()):
        before, after = old.get(resource), new.get(resource)
        if before == after:
            continue
        value: Mapping[str, Any] = after if after is not None else before or {}
        api_version, kind = str(value.get("apiVersion")), str(value.get("kind"))
        is_plain = _MASK not in f"{api_version}{kind}"
        members.append(_Member(GroupKind(group_of(api_version), kind), before, after, is_plain))
    kinds = {member.kind for member in members}
    definitions = [
        (m.new, defined[0])
        for m in members
        if m.kind.kind == CRD.kind and m.new is not None and (defined := defined_kind(m.new)) is not None
    ]
    plain = [value for value, _ in definitions if "spec" not in getattr(value, "masked", ())]
    masked = tuple(
        value
        for value, kind in definitions
        if "spec" in getattr(value, "masked", ()) and (kind in kinds or _MASK in str(kind))
    )
    named = frozenset(member.kind for member in members if member.is_plain)
    return _Requests(tuple(members), named, dict(definitions_of(plain)), masked)


# Clusters


class _MainFile(NamedTuple):
    """A file on main of a cluster, with the digest that equal ones have but for own values."""

    own_values: OwnValues
    files: Files
    path: str
    digest: bytes


class _Mains(Struct):
    """The files on main of all clusters."""

    inventory: Inventory
    contents: Contents
    reader: _Reader
    _files: dict[str, dict[bytes, list[_MainFile]]] = field(default_factory=dict)
    """The files by the words that may be kinds, of each cluster."""
    _words: dict[bytes, frozenset[bytes]] = field(default_factory=dict)
    _holding: dict[tuple[bytes, bytes], bool] = field(default_factory=dict)

    def read(self, name: str, kind: GroupKind, holding: bytes) -> Sequence[Mapping[str, Any]]:
        """Return the objects of a kind that packages on main of a cluster have, in files that hold this."""
        if not self._files:
            self._index()
        return [
            value
            for file in self._files.get(name, {}).get(kind.kind.encode(), ())
            if self._may_hold(file, holding)
            for value in self.reader.objects(file, kind)
        ]

    def _may_hold(self, file: _MainFile, group: bytes) -> bool:
        """Tell whether a file may have the name of a group; equal files are searched once."""
        labels = group.split(b".")
        # Where an own value is part of the group, files are equal that do not have the same ones.
        if any(label in labels for value in file.own_values.values for label in value.split(b".")):
            return group in file.files[file.path].data
        key = (file.digest, group)
        if key not in self._holding:
            self._holding[key] = group in file.files[file.path].data
        return self._holding[key]

    def _index(self) -> None:
        """Index what main has; equal files of a fleet are searched once."""
        for view in self.inventory.repositories.values():
            place, own_values = self._files.setdefault(view.cluster, {}), OwnValues.of((view.key.name,))
            for _, package in sorted(view.packages.items() if view.deployment else ()):
                files = self.contents.get(package.main_tree, {}) if package.main_tree is not None else {}
                for path in sorted(files):
                    if path.endswith(_SUFFIXES):
                        file = _MainFile(own_values, files, path, masked_digest(files, path, own_values))
                        for word in self._words_of(file):
                            place.setdefault(word, []).append(file)

    def _words_of(self, file: _MainFile) -> frozenset[bytes]:
        if file.digest not in self._words:
            words = frozenset(_KIND.findall(file.files[file.path].data))
            if not words.isdisjoint(file.own_values.values):
                return words
            self._words[file.digest] = words
        return self._words[file.digest]


class _Clusters(Struct):
    """The clusters of the fleet, each made once."""

    inventory: Inventory
    mains: _Mains
    _clusters: dict[str, Cluster] = field(default_factory=dict)

    def of(self, name: str) -> Cluster:
        """Return a cluster; a snapshot without a name counts where there is no other cluster."""
        if name not in self._clusters:
            snapshot = self.inventory.snapshot.exactly(name)
            others = {view.cluster for view in self.inventory.repositories.values() if view.deployment} - {
                name
            }
            if not snapshot.cluster and others:
                snapshot = type(snapshot)(cluster=name)
            taken = snapshot.time if snapshot.taken is None else snapshot.taken
            age_s = self.inventory.control.commit.time - taken
            is_recent = age_s <= self.inventory.policy.snapshot.max_age_s
            self._clusters[name] = Cluster(name, snapshot, is_recent, partial(self.mains.read, name))
        return self._clusters[name]
