"""Read the manifests of the control repository at a commit, and classify their objects."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from difflib import SequenceMatcher, get_close_matches
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.api import porch
from reconciler.api.annotations import INSTALLATION, check_keys
from reconciler.api.meta import Manifest
from reconciler.api.migration import migrate_set, untranslated_fields
from reconciler.api.porch import PackageVariant, PackageVariantSet, Repository
from reconciler.api.validation import FieldError, FieldType, parse_model, parse_partly, type_error
from reconciler.base.defects import DefectError, guard
from reconciler.base.errors import Location
from reconciler.base.lazy import regex
from reconciler.base.reasons import Reason
from reconciler.base.suggestions import suggest
from reconciler.base.text import some
from reconciler.dependencies.catalog.index import INDEX_DIRECTORY
from reconciler.dependencies.dialects import GROUPS
from reconciler.expand import check_partial
from reconciler.git.repository import Mirror
from reconciler.git.trees import PackageRefusedError
from reconciler.inventory.inventory import Source, Sourced, SourcedDocument
from reconciler.krm.values import mapping_at, value_at
from reconciler.names.ids import GroupKind, ObjectKey, ObjectName, Oid, group_of
from reconciler.names.problems import Problem, defect_problem
from reconciler.policy import Policy
from reconciler.read.files import (
    BrokenDocument,
    ClaimedIdentity,
    FileContent,
    FileEntry,
    ParsedObject,
    SourcePosition,
    UnreadPath,
    Walk,
    is_below,
    parse_file,
    yaml_limits,
)
from reconciler.records.state import LOCKS_DIRECTORY

_SIMILAR = 0.85
"""Ratio from which an unknown API group or kind is a misspelling of a known one."""
_MOST_FOREIGN = 5
"""Fields that one hint lists."""
_MAX_NAME = 253
_LABEL = regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = regex(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


class ManifestKind(Struct, frozen=True):
    """A kind of manifest: its version and model. `migrate` returns the hint for objects of other versions.

    A `distinctive` kind name belongs to no other API group, so that any other group is a mistake.
    """

    api_version: str
    kind: str
    model: type[Manifest]
    distinctive: bool = False
    migrate: Mapping[str, Callable[[Mapping[str, Any]], str]] = field(default_factory=dict)

    @property
    def group_kind(self) -> GroupKind:
        """Its group and kind."""
        return GroupKind(group_of(self.api_version), self.kind)


class UnsupportedObject(Struct, frozen=True):
    """An invalid object of our API: `kind` is its probable kind, `field` the wrong field."""

    reason: Reason
    message: str
    hint: str
    field: str
    kind: GroupKind | None = None


def _migrate_set(value: Mapping[str, Any]) -> str:
    """Return the hint for a set of v1alpha1: its v1alpha2 manifest, if that is equivalent."""
    current = {key: field for key, field in value.items() if key != "status"}
    current["apiVersion"] = porch.PACKAGE_VARIANT_SET
    if isinstance(parse_model(PackageVariantSet, current), PackageVariantSet):
        return f"Its fields are those of {porch.PACKAGE_VARIANT_SET}: change its apiVersion."
    if lost := untranslated_fields(value):
        fields = some(lost, _MOST_FOREIGN)
        return f"Write it as {porch.PACKAGE_VARIANT_SET}, by hand: {fields} cannot be translated."
    return f"Write it as {porch.PACKAGE_VARIANT_SET}:\n{migrate_set(value)}"


MANIFEST_KINDS: Mapping[GroupKind, ManifestKind] = {
    r.group_kind: r
    for r in (
        ManifestKind(porch.PACKAGE_VARIANT, "PackageVariant", PackageVariant, distinctive=True),
        ManifestKind(
            porch.PACKAGE_VARIANT_SET,
            "PackageVariantSet",
            PackageVariantSet,
            distinctive=True,
            migrate={f"{porch.GROUP}/v1alpha1": _migrate_set},
        ),
        ManifestKind(porch.REPOSITORY, "Repository", Repository),
    )
}

_SAME = 0.93
"""How alike two API groups are of which one is a slip: ops.crossplane.io is another one than pkg."""
_GROUPS = frozenset(kind.group for kind in MANIFEST_KINDS)
_IGNORED = frozenset({GroupKind(porch.GROUP, "PackageRev"), GroupKind(porch.GROUP, "FunctionConfig")})


def find_kind(value: Mapping[str, Any]) -> ManifestKind | UnsupportedObject | None:
    """Return the kind of an object, why it is not supported, or None for a foreign object."""
    api_version, kind = value.get("apiVersion"), value.get("kind")
    if not isinstance(api_version, str) or not isinstance(kind, str):
        return _incomplete(api_version, kind)
    group = group_of(api_version)
    manifest_kind = MANIFEST_KINDS.get(GroupKind(group, kind))
    if manifest_kind is not None:
        is_current = manifest_kind.api_version == api_version
        return manifest_kind if is_current else _other_version(manifest_kind, value)
    if group in _GROUPS:
        return None if GroupKind(group, kind) in _IGNORED else _unknown_kind(group, kind)
    for meant in _meant_kinds(kind):
        if meant.distinctive or (
            SequenceMatcher(None, group, group_of(meant.api_version)).ratio() >= _SIMILAR
        ):
            message = f"Unknown API group {group or '(none)'} of kind {kind}"
            hint = f"Use apiVersion: {meant.api_version}{_corrected(kind, meant)}."
            return UnsupportedObject(Reason.UNKNOWN_GROUP, message, hint, "apiVersion", meant.group_kind)
    return None


def _other_version(current: ManifestKind, value: Mapping[str, Any]) -> UnsupportedObject:
    api_version = str(value["apiVersion"])
    migrate = current.migrate.get(api_version)
    hint = migrate(value) if migrate else f"Use apiVersion: {current.api_version}."
    message = f"{current.kind} {api_version} is not supported; {current.api_version} is"
    return UnsupportedObject(Reason.UNSUPPORTED_VERSION, message, hint, "apiVersion", current.group_kind)


def _unknown_kind(group: str, kind: str) -> UnsupportedObject:
    kinds = [other.kind for other in MANIFEST_KINDS if other.group == group]
    hint = suggest(kind, kinds, most=1)
    meant = next((GroupKind(group, k) for k in kinds if hint == f"Did you mean {k}?"), None)
    return UnsupportedObject(Reason.UNKNOWN_KIND, f"Unknown kind {kind} of {group}", hint, "kind", meant)


def _meant_kinds(kind: object) -> list[ManifestKind]:
    """Return the kind of ours that a kind is, or is a misspelling of."""
    by_name = {entry.kind: entry for entry in MANIFEST_KINDS.values()}
    meant = get_close_matches(kind, by_name, 1, _SIMILAR) if isinstance(kind, str) else ()
    return [by_name[name] for name in meant]


def _corrected(kind: object, meant: ManifestKind) -> str:
    return "" if kind == meant.kind else f" and kind: {meant.kind}"


def _incomplete(api_version: object, kind: object) -> UnsupportedObject | None:
    """Return the error of an object of ours without apiVersion or kind, None for a foreign one."""
    for meant in _meant_kinds(kind) if api_version is None else ():
        message = "Missing required field apiVersion"
        hint = f"Add apiVersion: {meant.api_version}{_corrected(kind, meant)}."
        return UnsupportedObject(Reason.MISSING_FIELD, message, hint, "apiVersion", meant.group_kind)
    if isinstance(api_version, str) and (group := group_of(api_version)) in _GROUPS:
        kinds = ", ".join(entry.kind for entry in MANIFEST_KINDS if entry.group == group)
        hint = f"Add the kind, one of {kinds}."
        return UnsupportedObject(Reason.MISSING_FIELD, "Missing required field kind", hint, "kind")
    return None


class Classification(Struct, frozen=True):
    """The classification of one object.

    With a `manifest` it is valid; with a `key` alone its owner stalls. `broken` is the file of an object
    of uncertain identity. `foreign` is the kind of an object of another API, `document` one of a
    dependency dialect. `claim` is the downstream (repository, package) of an invalid PackageVariant.
    """

    key: ObjectKey | None = None
    manifest: Manifest | None = None
    source: Source | None = None
    problems: tuple[Problem, ...] = ()
    broken: str = ""
    foreign: str = ""
    document: SourcedDocument | None = None
    claim: tuple[str, str] | None = None


def classify_object(parsed: ParsedObject, policy: Policy) -> Classification:
    """Classify an object. Total. Of an invalid one all checks yield their problems."""
    value, place = parsed
    source = Source(place.location, marks=place)
    path = _unread(value)
    if path is not None or not isinstance(value, Mapping):
        return _no_object(value, place, path)
    kind = find_kind(value)
    if kind is None:
        return _foreign(value, place)
    group_kind = kind.kind if isinstance(kind, UnsupportedObject) else kind.group_kind
    key, wrong = _identity(value, group_kind, policy.default_namespace)
    problems = list[Problem]()
    if isinstance(kind, UnsupportedObject):
        problems.append(Problem(_at(place, (kind.field,)), kind.reason, kind.message, kind.hint))
    current = MANIFEST_KINDS.get(group_kind) if group_kind else None
    # A version with fields of its own is translated as a whole.
    if current is not None and not (problems and value.get("apiVersion") in current.migrate):
        read = {k: v for k, v in value.items() if k != "status"}
        read |= {"apiVersion": current.api_version, "kind": current.kind} if problems else {}
        manifest = parse_model(current.model, read)
        # A misspelt safety annotation leaves the intent unknown: its owner stalls, and nothing of it changes.
        keys = check_keys(current.kind, value)
        if key is not None and not problems and not keys and not isinstance(manifest, tuple):
            return Classification(key, manifest, source)
        partial = parse_partly(current.model, read)
        # A key of ours with a value of another type has one fault, not two.
        ours = {error.path for error in keys}
        errors = (*wrong, *(error for error in partial.errors if error.path not in ours), *keys)
        partial = partial._replace(errors=errors)
        problems += [_problem(error, place) for error in dict.fromkeys(errors)]
        problems += check_partial(partial, source, policy.limits)
    if key is None:
        return Classification(None, None, source, tuple(problems), broken=source.location.path)
    owned = tuple(problem.owned_by(key) for problem in problems)
    return Classification(key, None, source, owned, claim=_claim(key, value))


def _no_object(value: object, place: SourcePosition, path: tuple[str | int, ...] | None) -> Classification:
    """Classify what is no object, or has one of ours at `path`; it may be any object of its file."""
    if path is None and isinstance(value, list):  # of another tool
        return Classification(broken=place.path, foreign="(a list)")
    text = "empty" if value is None else f"the text {str(value)[:40]!r}"
    message = "Nothing reads the object here" if path else f"This is not a Kubernetes object, but {text}"
    hint = "Start the manifest with apiVersion, kind and metadata."
    if path is not None:
        hint = "Make it a document of its own, or one of the items of a `kind: List`."
    where = place.location if path is None else _at(place, path)
    return Classification(
        problems=(Problem(where, Reason.INVALID_MANIFEST, message, hint),), broken=place.path
    )


def _unread(value: object) -> tuple[str | int, ...] | None:
    """Return the path of an object of ours in a list, or in what looks like a misspelt `kind: List`."""
    places: list[tuple[tuple[str | int, ...], object]] = [((), value)]
    if isinstance(value, Mapping):
        is_core = not group_of(str(value.get("apiVersion") or ""))
        fields = value.items() if is_core and find_kind(value) is None else ()
        places = [((key,), inside) for key, inside in fields]
    for path, inside in places:
        items = inside.items() if isinstance(inside, Mapping) else ()
        for key, item in enumerate(inside) if isinstance(inside, list) else items:
            if isinstance(item, Mapping) and _is_read(item):
                return (*path, key)
    return None


def _is_read(value: Mapping[str, Any]) -> bool:
    is_dialect = group_of(str(value.get("apiVersion") or "")) in GROUPS
    return isinstance(value.get("metadata"), Mapping) and (is_dialect or find_kind(value) is not None)


def classify_broken(broken: BrokenDocument, path: str, default_namespace: str) -> Classification:
    """Classify a document that is not valid YAML: the owner it seems to be stalls, and its whole file."""
    problem, guess = broken.problem, broken.identity
    kind = GroupKind(group_of(guess.api_version), guess.kind)
    if kind not in MANIFEST_KINDS or not guess.name:
        return Classification(problems=(problem,), broken=path)
    key = ObjectKey(*kind, guess.namespace or default_namespace, guess.name)
    return Classification(key, None, Source(problem.location), (problem.owned_by(key),), broken=path)


def _claim(key: ObjectKey, value: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the downstream of a PackageVariant, None if it is missing or the kind is another one."""
    downstream = mapping_at(value, "spec", "downstream") if key.kind == "PackageVariant" else {}
    repo, package = downstream.get("repo"), downstream.get("package")
    return (repo, package) if isinstance(repo, str) and isinstance(package, str) else None


def _foreign(value: Mapping[str, Any], place: SourcePosition) -> Classification:
    """Classify an object of another API; one without a kind may have been ours, so its file is broken."""
    if _is_installation(value):
        value = {**value, "schemaType": INSTALLATION}
    if value.get("schemaType") == INSTALLATION or group_of(str(value.get("apiVersion") or "")) in GROUPS:
        source = Source(place.location, marks=place)
        return Classification(source=source, document=SourcedDocument(value, source))
    api_version, kind = value.get("apiVersion"), value.get("kind")
    if isinstance(api_version, str) and isinstance(kind, str):
        group = group_of(api_version)
        if meant := get_close_matches(group, GROUPS, 1, _SAME):
            message, where = f"Unknown API group {group} of kind {kind}", _at(place, ("apiVersion",))
            problem = Problem(where, Reason.UNKNOWN_GROUP, message, f"Did you mean {meant[0]}?")
            return Classification(problems=(problem,), broken=place.path)
        return Classification(foreign=str(GroupKind(group_of(api_version), kind)))
    return Classification(broken=place.path, foreign="(no kind)")


def _is_installation(value: Mapping[str, Any]) -> bool:
    """Tell whether a document is an Installation that has no schemaType, as Porter permits."""
    is_typed = "apiVersion" in value or "kind" in value
    return not is_typed and {"schemaVersion", "name", "bundle"} <= value.keys()


def _identity(
    value: Mapping[str, Any], kind: GroupKind | None, default_namespace: str
) -> tuple[ObjectKey | None, tuple[FieldError, ...]]:
    """Return the identity of an object, or what is wrong with its name and namespace."""
    metadata: Any = value.get("metadata") or {}
    if kind is None:
        return None, ()
    if not isinstance(metadata, Mapping):
        return None, (type_error(("metadata",), metadata, FieldType.MAPPING),)
    name: Any = metadata.get("name", "")
    namespace: Any = default_namespace if metadata.get("namespace") in (None, "") else metadata["namespace"]
    errors = list[FieldError]()
    for field_name, text, pattern in (("name", name, _SUBDOMAIN), ("namespace", namespace, _LABEL)):
        path = ("metadata", field_name)
        if text is None or text == "":
            hint = "; generateName is not enough" if "generateName" in metadata else ""
            message = "Missing required field metadata.name"
            errors.append(FieldError(path, Reason.MISSING_FIELD, message, f"Give it a name{hint}."))
        elif not isinstance(text, str):
            errors.append(type_error(path, text, FieldType.STRING))
        elif len(text) > _MAX_NAME or not pattern.fullmatch(text):
            message = f"metadata.{field_name} {text[:80]!r} is not a valid Kubernetes name"
            hint = "Use lower-case letters, digits and dashes, and start and end with a letter or digit."
            errors.append(FieldError(path, Reason.INVALID_NAME, message, hint))
    return (None, tuple(errors)) if errors else (ObjectKey(*kind, namespace, name), ())


def _problem(error: FieldError, place: SourcePosition) -> Problem:
    return Problem(_at(place, error.path, of_key=error.of_key), error.reason, error.message, error.hint)


def _at(place: SourcePosition, path: tuple[str | int, ...], *, of_key: bool = False) -> Location:
    return Location(place.path, *(place.key_mark(path) if of_key else place.mark(path)))


SUFFIXES = (".yaml", ".yml", ".json")

M = TypeVar("M", bound=Manifest)


class Manifests(Struct, frozen=True):
    """All manifests, sorted by namespace and name.

    `stalled` are owners with invalid manifests; `claims` are the downstreams (repository, package) that they
    name. `broken` are files with objects of uncertain identity: everything declared there is kept. `files`
    were read, `unread` were not, `missing` are manifest paths that do not exist. `documents` belong to the
    dependency dialects.
    """

    variants: tuple[Sourced[PackageVariant], ...] = ()
    sets: tuple[Sourced[PackageVariantSet], ...] = ()
    repositories: tuple[Sourced[Repository], ...] = ()
    documents: tuple[SourcedDocument, ...] = ()
    stalled: frozenset[ObjectKey] = frozenset()
    claims: Mapping[ObjectName, tuple[str, str]] = field(default_factory=dict)
    broken: frozenset[str] = frozenset()
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    files: frozenset[str] = frozenset()
    unread: tuple[UnreadPath, ...] = ()
    missing: tuple[str, ...] = ()


class _Files(NamedTuple):
    files: Mapping[str, tuple[FileEntry, str]]
    unread: tuple[UnreadPath, ...]
    missing: tuple[str, ...]


class _Contents(Struct):
    by_path: dict[str, FileContent] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def read_manifests(
    objects: Mirror,
    commit: Oid,
    policy: Policy,
    *,
    registered: Iterable[Repository] = (),
    is_control: Callable[[str], bool] = lambda _: False,
    left_out: Mapping[str, DefectError] = MappingProxyType({}),
) -> Manifests:
    """Return the manifests below the policy's paths.

    Isolated: an error in one file or object becomes a problem, and the others are read. Hidden files, the
    snapshot, the index, the configuration, a reviewed lock and registered package repositories (their
    directory, or packages below a registered root) are no manifests, unless a manifest path is inside them.

    `registered` are repositories registered elsewhere, as in the snapshot. Files that a bug of ours breaks
    are `left_out`.

    Raises:
        UnavailableError: The control repository is unreadable.
    """
    found_files, contents = _list_files(objects, commit, policy), _Contents()
    files = {path: file for path, file in found_files.files.items() if path not in left_out}
    # Registrations decide which packages are read, so files outside of packages come first.
    _parse([file for file, _ in files.values() if file.package is None], objects, policy, contents)
    directories = _registered_directories(contents, policy, registered, is_control)
    unregistered = {path for path, (file, via) in files.items() if not _is_registered(file, via, directories)}
    inside = [file for path, (file, _) in files.items() if file.package is not None and path in unregistered]
    _parse(inside, objects, policy, contents)
    classified = [
        *_classify(contents, sorted(unregistered & contents.by_path.keys()), policy),
        *(
            Classification(broken=problem.location.path, problems=(problem,))
            for problem in contents.problems
            if problem.location.path in unregistered
        ),
        *(_left_out(path, left_out[path]) for path in found_files.files.keys() & left_out.keys()),
    ]
    paths = {item.source.location.path for item in classified if item.source}
    manifests = _assemble(classified, objects.last_touched(commit, sorted(paths)))
    return replace(
        manifests,
        files=frozenset(unregistered | left_out.keys()),
        unread=found_files.unread,
        missing=found_files.missing,
    )


def parse_manifests(files: Mapping[str, bytes], policy: Policy) -> Manifests:
    """Return the manifests of files by path, as `read_manifests` does of a commit. Total."""
    contents, limits = _Contents(), yaml_limits(policy.limits)
    for path, data in files.items():
        contents.by_path[path] = parse_file(path, data, limits)
    return _assemble(_classify(contents, sorted(contents.by_path), policy), {})


def declared_objects(path: str, data: bytes, policy: Policy) -> frozenset[ObjectKey] | None:
    """Return the objects that a file declares, valid or not; None if it may declare others. Total."""
    contents = _Contents({path: parse_file(path, data, yaml_limits(policy.limits))})
    classified = _classify(contents, [path], policy)
    if any(item.broken for item in classified):
        return None
    return frozenset(item.key for item in classified if item.key)


def _list_files(objects: Mirror, commit: Oid, policy: Policy) -> _Files:
    locks = {LOCKS_DIRECTORY} if policy.lock.is_reviewed else set()
    left_out = frozenset({policy.snapshot.path, INDEX_DIRECTORY, *locks})
    walk = Walk(SUFFIXES, left_out, policy.limits.path_depth)
    files: dict[str, tuple[FileEntry, str]] = {}
    unread: set[UnreadPath] = set()
    missing: list[str] = []
    for path in sorted(policy.manifests, key=lambda p: (-len(p), p)):
        if tree := objects.subtree(commit, path):
            below = walk.below(objects, tree, path)
        elif blob := objects.blob_at(commit, path):
            below = iter((FileEntry(path, blob),))
        else:
            missing.append(path)
            continue
        for file in below:
            if isinstance(file, UnreadPath):
                unread.add(file)
            else:
                files.setdefault(file.path, (file, path))
    files.pop(policy.config_path, None)
    return _Files(files, tuple(sorted(unread)), tuple(sorted(missing)))


def _parse(files: Iterable[FileEntry], objects: Mirror, policy: Policy, contents: _Contents) -> None:
    batch = sorted(files)
    objects.ensure(file.oid for file in batch)
    limits = yaml_limits(policy.limits)
    for file in batch:
        try:
            data = objects.blob(file.oid, policy.limits.manifest_bytes)
        except PackageRefusedError as error:
            message = f"The file was not read: {error.reason}"
            hint = "Split the file, or raise spec.limits.manifestBytes."
            problem = Problem(Location(file.path), Reason.MANIFEST_UNREADABLE, message, hint)
            contents.problems.append(problem)
        else:
            contents.by_path[file.path] = parse_file(file.path, data, limits)


def _registered_directories(
    contents: _Contents, policy: Policy, registered: Iterable[Repository], is_control: Callable[[str], bool]
) -> frozenset[str]:
    directories = {d for repository in registered if (d := _directory(repository, is_control)) is not None}
    # Nearest to the root first: a registration inside a package repository is content and registers nothing.
    for path in sorted(contents.by_path, key=lambda p: (p.count("/"), p)):
        if any(d and is_below(path, d) for d in directories):
            continue
        for item in _classify(contents, [path], policy):
            if isinstance(item.manifest, Repository):
                directory = _directory(item.manifest, is_control)
                directories |= {directory} if directory is not None else set()
    return frozenset(directories)


def _directory(repository: Repository, is_control: Callable[[str], bool]) -> str | None:
    git = repository.spec.git
    return git.directory.strip("/") if git and is_control(git.repo) else None


def _is_registered(file: FileEntry, via: str, directories: Iterable[str]) -> bool:
    """Tell whether a file belongs to a package repository and the manifest path `via` is not inside it."""
    if file.package is not None and file.package != via:
        return any(is_below(file.package, d) for d in directories)
    return any(d and is_below(file.path, d) and not is_below(via, d) for d in directories)


def _classify(contents: _Contents, paths: Iterable[str], policy: Policy) -> list[Classification]:
    classified: list[Classification] = []
    for path in paths:
        content = contents.by_path[path]
        classified += (_guarded(item, policy) for item in content.objects)
        classified += (classify_broken(b, path, policy.default_namespace) for b in content.broken)
    return classified


def _left_out(path: str, error: DefectError) -> Classification:
    return Classification(broken=path, problems=(defect_problem(error, Location(path)),))


def _guarded(parsed: ParsedObject, policy: Policy) -> Classification:
    """Classify an object; one of which a bug of ours breaks the reading is as one that is no valid YAML."""
    try:
        with guard(parsed.place.path):
            return classify_object(parsed, policy)
    except DefectError as error:
        place, paths = parsed.place, ("apiVersion", "kind", "metadata.namespace", "metadata.name")
        names = (value_at(parsed.value, *path.split(".")) for path in paths)
        identity = ClaimedIdentity(*(name if isinstance(name, str) else "" for name in names))
        problem = defect_problem(error, Location(place.path, place.line + place.lines_above))
        return classify_broken(BrokenDocument(problem, identity), place.path, policy.default_namespace)


def _assemble(classified: list[Classification], times: Mapping[str, int]) -> Manifests:
    by_key: dict[ObjectKey, list[Classification]] = {}
    for item in classified:
        if item.key is not None:
            by_key.setdefault(item.key, []).append(item)
    duplicates = {key: declared for key, declared in by_key.items() if len(declared) > 1}
    problems = {problem for item in classified for problem in item.problems}
    problems |= {problem for key in duplicates for problem in _duplicates(key, duplicates[key])}
    invalid = {item.key for item in classified if item.key and item.manifest is None}
    valid = [item for item in classified if item.manifest is not None and item.key not in duplicates]
    documents = (item.document for item in classified if item.document)
    timed = (replace(document, source=_with_time(document.source, times)) for document in documents)
    return Manifests(
        variants=_sourced(valid, PackageVariant, times),
        sets=_sourced(valid, PackageVariantSet, times),
        repositories=_sourced(valid, Repository, times),
        documents=tuple(sorted(timed, key=lambda document: document.source.location)),
        stalled=frozenset(invalid | duplicates.keys()),
        claims={item.key.object_name: item.claim for item in classified if item.key and item.claim},
        broken=frozenset(item.broken for item in classified if item.broken),
        problems=tuple(sorted(problems)),
        notes=_notes(classified),
    )


def _duplicates(key: ObjectKey, declared: list[Classification]) -> Iterable[Problem]:
    """Yield a problem at each declaration of an object, with the locations of the others."""
    locations = sorted(item.source.location for item in declared if item.source)
    for here in locations:
        others = ", ".join(str(there) for there in locations if there != here)
        message = f"{key.subject} is also declared at {others}"
        yield Problem(here, Reason.DUPLICATE_OBJECT, message, "Keep one of them.").owned_by(key)


def _sourced(
    valid: Iterable[Classification], model: type[M], times: Mapping[str, int]
) -> tuple[Sourced[M], ...]:
    manifests = [
        Sourced(item.key.object_name, item.manifest, _with_time(item.source, times))
        for item in valid
        if item.key and item.source and isinstance(item.manifest, model)
    ]
    return tuple(sorted(manifests, key=lambda s: (s.key, s.source.location)))


def _with_time(source: Source, times: Mapping[str, int]) -> Source:
    return replace(source, time=times.get(source.location.path, 0))


def _notes(classified: Iterable[Classification]) -> tuple[str, ...]:
    foreign = Counter(item.foreign for item in classified if item.foreign)
    if not foreign:
        return ()
    # Those of a kind are known by it, the others by the file of the first.
    first = next((f", the first in {item.broken}" for item in classified if item.foreign and item.broken), "")
    kinds = ", ".join(
        f"{kind} ({count}{first if kind.startswith('(') else ''})" for kind, count in sorted(foreign.items())
    )
    return (f"Objects of other kinds among the manifests are not read: {kinds}",)
