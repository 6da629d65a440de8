"""Write snapshot directories from the output of kubectl: one file per kind and namespace, then the header."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson
from msgspec import Struct, field

from reconciler import __version__
from reconciler.api.snapshot import API_VERSION, FILE, KIND, ObjectList, SnapshotHeader
from reconciler.base.errors import ConfigurationError, Location, RefusedError, UsageError
from reconciler.base.lazy import regex
from reconciler.base.text import plural, verb
from reconciler.base.values import grouped
from reconciler.inventory.snapshot import ALL_NAMESPACES, SnapshotObject
from reconciler.krm.yaml import YamlLimits, emit, load_documents
from reconciler.names.ids import GroupKind, group_of
from reconciler.names.objects import check_names
from reconciler.read.snapshot import SUFFIXES, FileObjects, format_time, parse_header, parse_snapshot_file

CLUSTER_SCOPED = "_cluster"
"""File of the objects without a namespace; no namespace can be called so."""

_KIND = regex(r"[A-Za-z][A-Za-z0-9]{0,62}")
_GROUP = regex(r"([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.|$))*")
_NAMESPACE = regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
# Fields that every write of an object changes.
_CHURN = ("resourceVersion", "selfLink")
_CRD = GroupKind("apiextensions.k8s.io", "CustomResourceDefinition")
_MOST_NAMES = 3

_VERSION = regex(r"v[0-9]+((alpha|beta)[0-9]+)?")

_NAMESPACED = frozenset({"true", "false"})


class ApiResources(NamedTuple):
    """The APIs that a cluster serves: (apiVersion, kind) from a table, else only names.

    `plurals` are the kinds of the table by name; `names` are names without a kind, as `plural.group`.
    """

    served: frozenset[tuple[str, str]] = frozenset()
    plurals: Mapping[str, GroupKind] = MappingProxyType({})
    names: frozenset[str] = frozenset()
    resources: frozenset[str] = frozenset()
    """The kinds of the table as the header of a snapshot has them."""

    def serves(self, kind: GroupKind) -> bool:
        """Tell whether the cluster serves a kind, in whatever version."""
        return kind in self.plurals.values() or guess_plural(kind) in self.names


NO_RESOURCES = ApiResources()


def parse_api_resources(text: str) -> ApiResources:
    """Parse the output of `kubectl api-resources`, with or without `-o wide`, `-o name` or headers. Total."""
    # NAMESPACED is the only column with true or false: apiVersion precedes and kind follows it, whether
    # or not a resource has short names.
    served: set[tuple[str, str]] = set()
    plurals: dict[str, GroupKind] = {}
    names: set[str] = set()
    resources: set[str] = set()
    for line in text.splitlines():
        words = line.split()
        where = next((i for i, word in enumerate(words) if i and word in _NAMESPACED), 0)
        if where and where + 1 < len(words):
            api_version, kind = words[where - 1], GroupKind(group_of(words[where - 1]), words[where + 1])
            served.add((api_version, kind.kind))
            plurals[_qualified(words[0], kind.group)] = kind
            resources.add(f"{kind} {words[0]} {'Namespaced' if words[where] == 'true' else 'Cluster'}")
        elif len(words) == 1:
            names.add(words[0])
    names = set() if served else names
    return ApiResources(frozenset(served), plurals, frozenset(names), frozenset(resources))


def _qualified(plural: str, group: str) -> str:
    return f"{plural}.{group}" if group else plural


def guess_plural(kind: GroupKind) -> str:
    """Return the resource name that a kind usually has, with its group."""
    return _qualified(kind.plural, kind.group)


class ImportOptions(Struct, frozen=True):
    """Facts about the listed objects that they do not contain.

    `kinds` were listed: one without objects is empty, not unknown. `namespace` is the only one that was
    listed, "" for all. With `partial` selectors left objects out. `time` is in seconds. `versions` are those
    of components of the cluster; the others stay as they were.
    """

    time: int
    cluster: str = ""
    kinds: tuple[GroupKind, ...] = ()
    namespace: str = ""
    partial: bool = False
    resources: ApiResources = NO_RESOURCES
    versions: Mapping[str, str] = field(default_factory=dict)


class KindCount(NamedTuple):
    """Number of objects of one imported kind, now and before, and whether the list is complete."""

    kind: GroupKind
    now: int
    before: int
    complete: bool


class SnapshotFiles(Struct, frozen=True):
    """Files that an import writes and removes, by path from the snapshot's directory."""

    write: Mapping[str, bytes]
    remove: frozenset[str]
    counts: tuple[KindCount, ...] = ()
    notes: tuple[str, ...] = ()


class _Lists(Struct):
    objects: dict[GroupKind, list[SnapshotObject]] = field(default_factory=dict)
    incomplete: set[GroupKind] = field(default_factory=set)


def parse_kinds(text: str, resources: ApiResources) -> tuple[GroupKind, ...]:
    """Return the kinds of a list in kubectl's syntax: names of kinds, or of resources of the table.

    Each is followed by a group, or by a version and a group, as kubectl takes them; the version decides
    which one the API server prints. The core group is empty: `ConfigMap`, or `ConfigMap.v1.` with its dot.

    Raises:
        UsageError: A resource name is not in the table, or a version has no group.

    Source: apimachinery pkg/runtime/schema, ParseResourceArg.
    """
    words = (word.strip() for word in text.split(",") if word.strip())
    return tuple(dict.fromkeys(_parse_kind(word, resources.plurals) for word in words))


def _parse_kind(word: str, plurals: Mapping[str, GroupKind]) -> GroupKind:
    name, _, group = word.partition(".")
    version, dot, rest = group.partition(".")
    if _VERSION.fullmatch(version):
        if not dot:
            raise UsageError(f"{word} has a version and no group", hint=f"Write {word}. for the core group.")
        group = rest
    if (kind := plurals.get(_qualified(name, group))) is not None:
        return kind
    if not name[:1].isupper():
        hint = "Write Kind.group, Cluster.example.com say: kubectl takes that too."
        raise UsageError(f"The kind of resource {word} is not known", hint=hint)
    return GroupKind(group, name)


def plan_import(
    inputs: Sequence[tuple[str, bytes]],
    existing: Mapping[str, bytes],
    options: ImportOptions,
    limits: YamlLimits,
) -> SnapshotFiles:
    """Return the files that replace each imported kind whole. Deterministic.

    `inputs` are name and content of each output of kubectl, `options` facts that these do not contain.

    Raises:
        ConfigurationError: An input or the existing header is invalid.
        RefusedError: Another file of the snapshot holds objects of an imported kind, or a kind or namespace
            is no file name.
        UsageError: There is nothing to import.
    """
    lists = _parse(inputs, options, limits)
    _check_other_files(existing, lists, limits)
    header = _existing_header(existing)
    write: dict[str, bytes] = {}
    remove: set[str] = set()
    for kind, objects in sorted(lists.objects.items()):
        spaces = grouped((item.namespace, item) for item in objects)
        files = {file_path(kind, space): render_objects(items) for space, items in spaces.items()}
        former = {path for path in existing if path.rpartition("/")[0] == str(kind)}
        former &= {file_path(kind, options.namespace)} if options.namespace else former
        remove |= former - files.keys()
        write |= files
    header_bytes, notes = _header(header, lists, options)
    write[FILE] = header_bytes
    check_names(write, existing, maker="The import")
    changed = {path: data for path, data in write.items() if existing.get(path) != data}
    before = _totals(header)
    counts = {kind: len({(o.namespace, o.name) for o in objects}) for kind, objects in lists.objects.items()}
    reported = tuple(
        KindCount(kind, count, before.get(kind, 0), kind not in lists.incomplete)
        for kind, count in sorted(counts.items())
    )
    return SnapshotFiles(changed, frozenset(remove), reported, notes)


def file_path(kind: GroupKind, namespace: str) -> str:
    """Return the path of the objects of a kind in a namespace: `Cluster.example.com/default.json`."""
    return f"{kind}/{namespace or CLUSTER_SCOPED}.json"


def render_objects(objects: Iterable[SnapshotObject]) -> bytes:
    """Return the file of objects: a list as kubectl prints it, sorted, one field per line."""
    ordered = sorted(objects, key=lambda o: (o.name, o.api_version))
    value = {"apiVersion": "v1", "items": [_body(o) for o in ordered], "kind": "List"}
    option = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
    return orjson.dumps(value, option=option)


def _body(item: SnapshotObject) -> dict[str, Any]:
    body = dict(item.body)
    metadata = body.get("metadata")
    if isinstance(metadata, Mapping):
        body["metadata"] = {k: v for k, v in metadata.items() if k not in _CHURN}
    return body


def _parse(inputs: Sequence[tuple[str, bytes]], options: ImportOptions, limits: YamlLimits) -> _Lists:
    lists = _Lists({kind: [] for kind in options.kinds})
    for name, data in inputs:
        _add(lists, name, data, parse_snapshot_file(name, data, limits))
    if not lists.objects:
        hint = "Name what was asked for with --kinds, so that an empty list means that nothing is there."
        raise UsageError("There is nothing to import: no object, and no kind is named", hint=hint)
    for kind, objects in lists.objects.items():
        _check_names(kind, objects)
        if options.namespace:
            other = next((o for o in objects if o.namespace != options.namespace), None)
            if other is not None:
                message = f"{kind} {other.namespace}/{other.name} is not in {options.namespace}"
                raise UsageError(message, hint="Leave --namespace out for a list over all namespaces.")
        lists.objects[kind] = list({(o.api_version, o.namespace, o.name): o for o in objects}.values())
    if options.partial:
        lists.incomplete.update(lists.objects)
    return lists


def _add(lists: _Lists, name: str, data: bytes, file: FileObjects) -> None:
    if not data.strip():
        hint = "Nothing was changed. See what kubectl printed, and run it again."
        raise ConfigurationError(f"{name} is empty", hint=hint)
    if file.problems:
        first, *others = file.problems
        more = f" (and {len(others)} more)" if others else ""
        raise ConfigurationError(f"{first.message}{more}", location=first.location, hint=first.hint)
    kinds = {GroupKind(group_of(api_version), kind) for api_version, kind in file.lists}
    for item in file.objects:
        kind = _group_kind(item)
        kinds.add(kind)
        lists.objects.setdefault(kind, []).append(item)
    for kind in kinds:
        lists.objects.setdefault(kind, [])
    if file.partial:
        lists.incomplete |= kinds


def _check_names(kind: GroupKind, objects: Iterable[SnapshotObject]) -> None:
    """Refuse names that are not valid paths.

    Raises:
        ConfigurationError: A group, kind or namespace is invalid in Kubernetes.
    """
    if not _KIND.fullmatch(kind.kind) or not _GROUP.fullmatch(kind.group):
        raise ConfigurationError(f"{str(kind)!r} is not a kind of Kubernetes", location=Location(str(kind)))
    for item in objects:
        if item.namespace and not _NAMESPACE.fullmatch(item.namespace):
            message = f"{item.namespace!r} is not a namespace of Kubernetes"
            raise ConfigurationError(message, location=item.location)


def _group_kind(item: SnapshotObject) -> GroupKind:
    return GroupKind(group_of(item.api_version), item.kind)


def _check_other_files(existing: Mapping[str, bytes], lists: _Lists, limits: YamlLimits) -> None:
    """Refuse to import a kind that another file of the snapshot contains too.

    Raises:
        RefusedError: There is such a file.
    """
    ours = {str(kind) for kind in lists.objects}
    for path, data in sorted(existing.items()):
        if path == FILE or path.rpartition("/")[0] in ours:
            continue
        for item in parse_snapshot_file(path, data, limits).objects:
            kind = _group_kind(item)
            if kind in lists.objects:
                hint = f"Remove it first: the import writes {file_path(kind, item.namespace)}."
                raise RefusedError(f"{path} of the snapshot holds objects of kind {kind}", hint=hint)


def _existing_header(existing: Mapping[str, bytes]) -> SnapshotHeader:
    data = existing.get(FILE)
    if data is None:
        return SnapshotHeader(api_version=API_VERSION, kind=KIND)
    problems = parse_header(FILE, data).problems
    if problems:
        hint = "Correct or remove the file."
        raise ConfigurationError(problems[0].message, location=problems[0].location, hint=hint)
    return SnapshotHeader.model_validate(load_documents(data)[0].value, by_alias=True, by_name=False)


def _totals(header: SnapshotHeader) -> dict[GroupKind, int]:
    """Return the number of objects of each kind: of its list over all namespaces, else the sum."""
    totals: dict[GroupKind, int] = {}
    for listed in sorted(header.spec.lists, key=lambda o: o.namespace == ALL_NAMESPACES):
        kind = GroupKind(listed.group, listed.kind)
        more = 0 if listed.namespace == ALL_NAMESPACES else totals.get(kind, 0)
        totals[kind] = more + listed.count
    return totals


def _header(old: SnapshotHeader, lists: _Lists, options: ImportOptions) -> tuple[bytes, tuple[str, ...]]:
    cluster = options.cluster or old.metadata.name
    if not cluster:
        hint = "Pass the listed cluster: --cluster NAME."
        raise UsageError("The snapshot has no cluster name yet", hint=hint)
    if old.metadata.name and cluster != old.metadata.name:
        hint = "Import another cluster into another directory."
        message = f"This is the snapshot of cluster {old.metadata.name}, not of {cluster}"
        raise RefusedError(message, hint=hint)
    served, notes = _served(old, lists, options)
    versions = {**(old.spec.versions or {}), **options.versions, "reconciler": __version__}
    spec: dict[str, Any] = {"time": format_time(options.time), "versions": dict(sorted(versions.items()))}
    if served is not None:
        spec["served"] = served
    if resources := sorted(options.resources.resources) or old.spec.resources:
        spec["resources"] = resources
    if spec["time"] < (old.spec.time or ""):  # as every import writes it
        older = f"These lists are of {spec['time']}, older than the snapshot, which is of {old.spec.time}"
        notes = (*notes, older)
    spec["lists"] = [_entry(listed, spec["time"]) for listed in _lists_after(old, lists, options)]
    value = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": cluster}, "spec": spec}
    return (emit(value) + "\n").encode(), notes


def _lists_after(old: SnapshotHeader, lists: _Lists, options: ImportOptions) -> list[ObjectList]:
    """Return the lists of the new header: the imported ones, and the others with their old time."""
    others = []
    for listed in old.spec.lists:
        kind = GroupKind(listed.group, listed.kind)
        other_namespace = options.namespace and listed.namespace not in ("*", options.namespace)
        if kind not in lists.objects or other_namespace:
            others.append(listed.model_copy(update={"time": listed.time or old.spec.time}))
    fresh = [entry for kind in lists.objects for entry in _fresh(kind, lists, options)]
    return sorted([*others, *fresh], key=lambda o: (o.group, o.kind, o.namespace))


def _fresh(kind: GroupKind, lists: _Lists, options: ImportOptions) -> Iterator[ObjectList]:
    complete = kind not in lists.incomplete
    # An object in two versions is one object.
    names = {(o.namespace, o.name) for o in lists.objects[kind]}
    counts = Counter(namespace for namespace, _ in names)

    def entry(namespace: str, count: int) -> ObjectList:
        return ObjectList(
            group=kind.group, kind=kind.kind, namespace=namespace, count=count, complete=complete
        )

    if options.namespace:
        yield entry(options.namespace, counts.get(options.namespace, 0))
        return
    yield entry(ALL_NAMESPACES, sum(counts.values()))
    yield from (entry(space, count) for space, count in counts.items() if space)


def _entry(listed: ObjectList, time: str) -> dict[str, Any]:
    value = listed.model_dump(exclude_none=True)
    if value.get("time") == time:
        del value["time"]
    return {key: v for key, v in value.items() if v != "" and v is not False}


def _served(
    old: SnapshotHeader, lists: _Lists, options: ImportOptions
) -> tuple[list[str] | None, tuple[str, ...]]:
    """Return the served APIs, None if they are not all known, and notes."""
    resources = options.resources
    if resources.served:
        return sorted({f"{version} {kind}" for version, kind in resources.served}), ()
    if not resources.names:
        unchanged = "The served APIs stay those of an earlier import: give --api-resources to renew them"
        return old.spec.served, (unchanged,) if old.spec.served is not None else ()
    apis = dict(_resource_apis(lists))
    unknown = sorted(resources.names - apis.keys())
    if not unknown:
        return sorted({api for name in resources.names for api in apis[name]}), ()
    names = plural(len(unknown), "resource name")
    kinds = verb(len(unknown), "is of an unknown kind", "are of unknown kinds")
    listed = ", ".join([*unknown[:_MOST_NAMES], *(["…"] if len(unknown) > _MOST_NAMES else [])])
    note = (
        f"{names} {kinds} ({listed}): the served APIs "
        "are not recorded; give the table of `kubectl api-resources` in place of `-o name`"
    )
    return old.spec.served, (note,)


def _resource_apis(lists: _Lists) -> Iterator[tuple[str, frozenset[str]]]:
    for kind, objects in lists.objects.items():
        versions = {o.api_version for o in objects}
        if versions:
            yield guess_plural(kind), frozenset(f"{version} {kind.kind}" for version in versions)
    for crd in lists.objects.get(_CRD, ()):
        spec = crd.body.get("spec")
        if isinstance(spec, Mapping) and isinstance(names := spec.get("names"), Mapping):
            listed = (v for v in spec.get("versions", ()) if isinstance(v, Mapping))
            served = [version.get("name") for version in listed if version.get("served")]
            apis = frozenset(f"{spec.get('group')}/{version} {names.get('kind')}" for version in served)
            yield f"{names.get('plural')}.{spec.get('group')}", apis


def read_directory(directory: Path) -> dict[str, bytes]:
    """Return the snapshot files of a directory by path from it; none if it does not exist.

    Links are not followed, and the snapshots of single clusters below are not a part of it.
    """
    others = [header.parent for header in directory.glob(f"*/{FILE}")]
    paths = (
        path
        for path in directory.rglob("*")
        if path.suffix in SUFFIXES and path.is_file() and not path.is_symlink()
        if not any(path.is_relative_to(other) for other in others)
    )
    return {p.relative_to(directory).as_posix(): p.read_bytes() for p in sorted(paths)}


def find_directory(root: Path, cluster: str) -> Path:
    """Return where the snapshot of a cluster is kept below a snapshot directory.

    That is the directory itself if it has the snapshot of this cluster already, else the cluster's own
    below it. Without a name it is the only one that there is.

    Raises:
        UsageError: The cluster must be named.
    """
    headers = (root / FILE, *sorted(root.glob(f"*/{FILE}")))
    named = ((path.parent, _cluster_name(path)) for path in headers)
    clusters = {directory: name for directory, name in named if name is not None}
    if not cluster and len(clusters) == 1:
        return next(iter(clusters))
    if not cluster:
        names = ", ".join(sorted(filter(None, clusters.values())))
        hint = f"Name it: --cluster NAME{f', one of {names}' if clusters else ''}."
        raise UsageError("The cluster of this snapshot is unknown", hint=hint)
    return root if clusters.get(root) == cluster else root / cluster


def _cluster_name(header: Path) -> str | None:
    """Return the cluster of a snapshot's header, None if there is none; "" if it is not understood."""
    try:
        return parse_header(FILE, header.read_bytes()).cluster
    except OSError:
        return None


def write_directory(directory: Path, files: SnapshotFiles) -> None:
    """Write what an import changes.

    A run that is killed on the way leaves objects that the old header does not count, which no
    reader takes for complete; the next import puts it right.

    Raises:
        ConfigurationError: The directory cannot be written.
    """
    try:
        for path in sorted(files.remove):
            (directory / path).unlink(missing_ok=True)
        for path, data in sorted(files.write.items(), key=lambda item: (item[0] == FILE, item[0])):
            target = directory / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
    except OSError as error:
        message = f"{error.filename or directory} cannot be written: {error.strerror}"
        hint = "Check the directory, or name another with --out-dir."
        raise ConfigurationError(message, hint=hint) from error
