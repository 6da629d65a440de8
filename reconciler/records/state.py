"""File formats of the state branch, in stable bytes: what was applied last, and pins of upstreams (D3)."""

from collections.abc import Iterable, Iterator, Mapping
from io import BytesIO
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import quote

import msgspec
import orjson
from msgspec import UNSET, Meta, Struct, UnsetType, field
from msgspec.structs import replace

from reconciler.base.errors import ConfigurationError, Location
from reconciler.base.values import Record, canonical_json
from reconciler.names.ids import NamedObject, ObjectName, RolloutKey
from reconciler.names.trailers import BOX, KEEPS, TAKES, Ticks

SCHEMA = "reconciler.dev/v1alpha1"
LINES_SCHEMA = "reconciler.dev/v1alpha2"
"""The version of a branch with one file of records for each repository; an older reconciler refuses it."""
VARIANTS_DIRECTORY = "packagevariants"
VARIANTS_FORMAT = f"{VARIANTS_DIRECTORY}/format.json"
"""The path of the version of the files beside it."""
LINES_SUFFIX = ".jsonl"
MOST_BYTES = 1 << 30
"""The largest file of a machine-owned branch: all packages of a fleet may be in one repository."""
SETS_DIRECTORY = "packagevariantsets"
WANTED_LOCK = "lock.json"
"""The path of the record of the lock that was computed last, if locks are reviewed."""
ROLLOUTS_DIRECTORY = "rollouts"
APPLIED = "applied.json"
PULLS_DIRECTORY = "observed/pulls"
"""The directory of the histories of pull requests on the status branch."""
REFUSED_DELETIONS = "deletions.json"
"""The path of the record of deletions that were refused and wait for consent."""


def recorded_ticks(record: "PackageVariantRecord | None") -> Ticks:
    """Return the boxes that answered conflicts when a variant was last applied."""
    boxes = (answer for answer in (record.answers if record else ()) if answer.policy == BOX)
    return frozenset((KEEPS if answer.chosen == answer.local else TAKES, answer.name) for answer in boxes)


class NamedRecord(Record, frozen=True, kw_only=True):
    """Base of records of one object."""

    namespace: str
    name: str

    @property
    def key(self) -> ObjectName:
        """The object's identity."""
        return ObjectName(self.namespace, self.name)


class ConflictRecord(Record, frozen=True, kw_only=True):
    """One value that both sides changed; a Secret's values are masked.

    A side that deleted the value has None. `name` is how commit messages name it, without a Secret's marks.
    Where it was answered, `by` is what answered it and `chosen` the value that the draft has, `policy` the
    policy, as it is written, and `source` where. Without `by` it waits for a person.
    """

    path: str
    resource: str = ""
    field: str = ""
    upstream: str | None = ""
    local: str | None = ""
    name: str = ""
    chosen: str | None = ""
    by: str = ""
    policy: str = ""
    source: str = ""


class SharedSpec(Mapping[str, Any]):
    """A recorded spec that shares all but its downstream with the records of the same set.

    It equals a dict with the same content: of a hundred thousand packages, two dicts for each take 40 MiB.
    """

    __slots__ = ("_package", "_repo", "_shared")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, shared: Mapping[str, Any], repo: str, package: str) -> None:
        self._shared, self._repo, self._package = shared, repo, package

    @property
    def plain(self) -> dict[str, Any]:
        """The spec as a dict of its own."""
        return {**self._shared, "downstream": {"repo": self._repo, "package": self._package}}

    def __getitem__(self, name: str) -> Any:
        return {"repo": self._repo, "package": self._package} if name == "downstream" else self._shared[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.plain)

    def __len__(self) -> int:
        return len(self._shared) + 1

    def __eq__(self, other: object) -> bool:
        return self.plain == other


class SubpackageRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """A sub-package with an upstream of its own, at one ref and commit; `before` is the ref that main has."""

    directory: str
    repo: str
    package: str
    ref: str
    commit: str = ""
    before: str = ""


class RefusedMerge(Record, frozen=True, kw_only=True):
    """That a forge refused to merge a head by policy: its words, and the times of the first and last refusal.

    It counts while `basis` holds, a digest of all that the forge's answer may depend on, and for a while.
    """

    head: str
    basis: str
    first: int
    last: int
    message: str = ""


class RecordedDownstream(Record, frozen=True, kw_only=True):
    """The place of a variant's package, now or before, complete enough to be read again (D36).

    `url` is the identity of the repository; `remote` is its address for git, without secrets and relative
    where that is how it was registered. `directory` and `repository` are those of the former Repository, and
    `registration` is the file that declared it. Of a place where it was, `deletion_proposed` is True if its
    removal is proposed, or was declined. `known_as` is what the place is called while no Repository is there.
    `cluster` is the cluster of the Repository where that has another name.
    """

    url: str
    path: str
    directory: str = ""
    repository: str = ""
    branch: str = ""
    remote: str = ""
    registration: str = ""
    deletion_proposed: bool = False
    known_as: str = ""
    cluster: str = ""


class PackageVariantRecord(NamedRecord, frozen=True, kw_only=True):
    """One PackageVariant as last applied: our finalizer (D3).

    It leaves only when its deletion or orphaning is observed downstream. `manifest` is the
    file that declared it (the set's file for a generated one), `set_name` the set or "", `target` the
    kind and name of the object that the set selected for it, if any, `target_index` the target of the
    set that did, and `target_cluster` the cluster of its snapshot where the set names several.
    `inputs` is a digest of all that its package was rendered from, `local_tree` the package on
    main that it was rendered onto ("" for none) and `output_tree` the result: where all three
    still hold, nothing needs to be read again (D15). `retry` is the last request to propose again
    what was rejected; `deletion_proposed` tells that people were asked to delete the package.
    `facts` are inputs by name, to report later which of them changed.
    `injection` are the required injection points that are empty, None if the package has no points;
    `objects` are digests of the cluster objects that its injectors may name, by kind and name;
    `group` is the head of the group that its draft was last in;
    `conflicts` wait for a person's answer, `answers` are those that were given, `asked_from` is the
    upstream tree before the one that they came with, and `unready` are the other reasons against the
    approval of the package: if it `failed` the first is how functions failed, or why they cannot run.
    `requested_by` are the dependents of a generated variant; it is empty for every other. `subpackages` are
    those with an upstream of their own, `warnings` those of the last render, `overwritten` those of them
    about edits of people that a function writes over. `context` is what was written
    into the package context, also for earlier manifests until main is as wanted; None for a key that was
    removed. `refused` is about its draft. `unedited` are the trees of its package, at any of its places, that
    have nothing of people, None for unknown. `moved_from` is the variant that had the package elsewhere, by
    another name. `branch`, `remote`, `registration`, `known_as` and `cluster` complete the place of the
    package, a `RecordedDownstream`; `former` are those where it was before, while something of it is left
    there. `equal_commit` is the upstream commit that the Kptfile on main names, where main has the
    resources of `upstream_commit` all the same.
    """

    api_version: str = SCHEMA
    kind: str = "PackageVariantRecord"
    uid: str
    manifest: str
    set_name: str = ""
    target: str = ""
    target_index: int | None = None
    target_cluster: str = ""
    requested_by: tuple[str, ...] = ()
    url: str
    path: str
    repository: str
    deletion_policy: str = "delete"
    spec: Mapping[str, Any]
    upstream_commit: str = ""
    upstream_tree: str = ""
    inputs: str = ""
    local_tree: str = ""
    output_tree: str = ""
    retry: str = ""
    group: str = ""
    deletion_proposed: bool = False
    injection: str | None = None
    conflicts: tuple[ConflictRecord, ...] = ()
    answers: tuple[ConflictRecord, ...] = ()
    asked_from: str = ""
    unready: tuple[str, ...] = ()
    failed: bool = False
    objects: dict[str, str] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    subpackages: tuple[SubpackageRecord, ...] = ()
    warnings: tuple[str, ...] = ()
    overwritten: tuple[str, ...] = ()
    unedited: tuple[str, ...] | None = None
    moved_from: str = ""
    context: dict[str, str | None] = field(default_factory=dict)
    refused: RefusedMerge | None = None
    branch: str = ""
    remote: str = ""
    registration: str = ""
    known_as: str = ""
    cluster: str = ""
    former: tuple[RecordedDownstream, ...] = ()
    equal_commit: str = ""

    @property
    def selected(self) -> NamedObject | None:
        """The object that its set selected."""
        return NamedObject.parse(self.target)

    @property
    def downstream(self) -> RecordedDownstream:
        """Where the package was as last applied."""
        package = str((self.spec.get("downstream") or {}).get("package") or "").strip("/")
        return RecordedDownstream(
            url=self.url,
            path=self.path,
            directory=self.path.removesuffix(package).strip("/"),
            repository=self.repository,
            branch=self.branch,
            remote=self.remote,
            registration=self.registration,
            deletion_proposed=self.deletion_proposed,
            known_as=self.known_as,
            cluster=self.cluster,
        )

    @property
    def downstreams(self) -> tuple[RecordedDownstream, ...]:
        """Every place where something of the package may be, the present one first."""
        return (self.downstream, *self.former)

    @property
    def packages(self) -> frozenset[tuple[str, str]]:
        """The URLs and paths where the package is or was."""
        return frozenset(((self.url, self.path), *((place.url, place.path) for place in self.former)))

    def is_at(self, package: tuple[str, str]) -> bool:
        """Tell whether the package is at a URL and path, or was there before."""
        return (self.url, self.path) == package or (bool(self.former) and package in self.packages)


class SetRecord(NamedRecord, frozen=True, kw_only=True):
    """One PackageVariantSet as last applied: how many variants it had, and where it was declared."""

    api_version: str = SCHEMA
    kind: str = "PackageVariantSetRecord"
    uid: str
    manifest: str
    targets: int


class RolloutPin(Record, frozen=True, kw_only=True):
    """Upstream revision of a package before a rollout: `package` is that upstream's path in the Repository.

    `main` is its tree on main then, where its values alone change. `values` is the digest of what its set's
    template gave, "" for nothing, None if that is not known.
    """

    repository: str
    package: str
    ref: str
    commit: str
    tree: str
    main: str = ""
    values: str | None = None


UNTIMED = 1
"""The time of what was observed without one: where a time is needed, it counts from the run that needs it."""


class RolloutMember(NamedRecord, frozen=True, kw_only=True):
    """One variant of a rollout: its wave, what it moves to, and what it had before (None: no run saw that).

    `target` tells one upstream revision with its values from another, "" if it is not known yet. `published`
    is the time of the run that first saw it on main, in seconds: 0 if none did, `UNTIMED` if no wave needs
    the time, or if main had it and has another again. `failed` is how it failed, and `why` in words: it stays
    until a run sees the opposite. One that has `ended` is judged no more: its waves ended.
    """

    wave: str
    target: str = ""
    before: RolloutPin | None = None
    published: int = 0
    failed: Literal["", "closed", "reverted", "unhealthy"] = ""
    why: str = ""
    ended: bool = False


class RolloutRecord(NamedRecord, frozen=True, kw_only=True):
    """The rollout of one set, or of one of its upstreams: its targets are those of its start, in waves (D20).

    `revision` is what travels, as people call it; `waves` are those with targets, in their order. It is
    finished when every wave was complete or skipped, and stays so: later targets are members that did not
    end. `values` are what the template gave before, by digest; None in records of versions that knew none.
    """

    api_version: str = SCHEMA
    kind: str = "RolloutRecord"
    upstream: str | UnsetType = UNSET
    revision: str
    waves: tuple[str, ...]
    members: tuple[RolloutMember, ...] = ()
    finished: bool = False
    values: Mapping[str, Mapping[str, Any]] | None = None

    @property
    def rollout(self) -> RolloutKey:
        """The rollout's identity."""
        return RolloutKey(self.namespace, self.name, self.upstream or "")


class WantedLockRecord(Record, frozen=True, kw_only=True):
    """The tree of the reviewed lock that was computed last, to recognise a proposal that a person closed."""

    api_version: str = SCHEMA
    kind: str = "WantedLockRecord"
    tree: str


class AppliedRecord(Record, frozen=True, kw_only=True):
    """The commit of the control repository that was applied last (D28)."""

    api_version: str = SCHEMA
    kind: str = "AppliedRecord"
    commit: str


class RefusedPackage(Record, frozen=True, kw_only=True):
    """A package with a refused deletion after its variant moved; `of` counts the owned packages then."""

    url: str
    path: str
    of: int


class RefusedVariant(NamedRecord, frozen=True, kw_only=True):
    """A variant with a refused deletion; `of` is the number of variants then."""

    of: int


class RefusedDeletionsRecord(Record, frozen=True, kw_only=True):
    """The deletions that were refused and wait for consent, each with how many there were of its kind.

    What leaves in the meantime makes no refused deletion small enough to go without consent.
    """

    api_version: str = SCHEMA
    kind: str = "RefusedDeletionsRecord"
    variants: tuple[RefusedVariant, ...] = ()
    packages: tuple[RefusedPackage, ...] = ()


class PullMark(NamedTuple):
    """The pull request of a repository that changed last: the seconds at which it was opened and changed."""

    number: int
    created: float
    changed: float


class EndedPull(Record, frozen=True, kw_only=True):
    """A pull request that ended: what a plan may need of it.

    `closed` is in seconds, 0 if unknown; `proposes` is the package tree of its text, "" if unknown.
    """

    number: int
    head: str
    state: Literal["closed", "merged"]
    head_oid: str
    closed: int = 0
    url: str = ""
    proposes: str = ""


class PullHistory(Record, frozen=True, kw_only=True):
    """Ended pull requests of one repository, so that no run lists what ended long ago.

    The next run lists what changed after `mark`. `pulls` has all of `branches`, the drafts that
    were there, and the last ones of all other branches.
    """

    api_version: str = SCHEMA
    kind: str = "PullRequestHistory"
    url: str
    mark: PullMark
    pulls: tuple[EndedPull, ...] = ()
    branches: tuple[str, ...] = ()


NOTHING_REFUSED = RefusedDeletionsRecord()
"""The default without a record."""


AnyRecord = (
    PackageVariantRecord
    | SetRecord
    | RolloutRecord
    | WantedLockRecord
    | AppliedRecord
    | RefusedDeletionsRecord
    | PullHistory
)


def record_bytes(record: AnyRecord) -> bytes:
    """Return the record's canonical bytes, with sorted keys and a final newline. Deterministic.

    The record of a variant is one line without defaults; any other is indented by two spaces.
    """
    if isinstance(record, PackageVariantRecord):
        options = orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
        return orjson.dumps(_without_defaults(record), default=dict, option=options)
    return canonical_json(record)


def _without_defaults(value: PackageVariantRecord | ConflictRecord) -> dict[str, Any]:
    """Return a record as plain data, without what is default."""
    held = zip(_FIELDS[type(value)], msgspec.structs.astuple(value), strict=True)
    plain = {name: part for (name, default), part in held if part != default}
    for name in ("conflicts", "answers") if isinstance(value, PackageVariantRecord) else ():
        if name in plain:
            plain[name] = [_without_defaults(conflict) for conflict in plain[name]]
    if "subpackages" in plain:
        plain["subpackages"] = [msgspec.structs.asdict(subpackage) for subpackage in plain["subpackages"]]
    for name in {"refused", "former"} & plain.keys():
        plain[name] = msgspec.to_builtins(plain[name])
    return plain


def _fields(kind: type[Any]) -> Iterator[tuple[str, Any]]:
    """Yield each field of a record: its name on disk, and its default."""
    for member in msgspec.structs.fields(kind):
        make = member.default_factory
        yield member.encode_name, member.default if make is msgspec.NODEFAULT else make()


_FIELDS = {kind: (*_fields(kind),) for kind in (PackageVariantRecord, ConflictRecord)}
_DIRECTORIES: dict[type[Any], str] = {
    PackageVariantRecord: VARIANTS_DIRECTORY,
    SetRecord: SETS_DIRECTORY,
    RolloutRecord: ROLLOUTS_DIRECTORY,
}


def record_path(record: PackageVariantRecord | SetRecord | RolloutRecord) -> str:
    """Return the record's path on the state branch; that of a variant is a name for `branch_files`."""
    directory = _DIRECTORIES[type(record)]
    if isinstance(record, RolloutRecord) and record.upstream:
        directory = f"{directory}/{quote(record.upstream, safe='')}"
    return f"{directory}/{record.namespace}/{record.name}.json"


def history_path(url: str) -> str:
    """Return the path of a repository's history of pull requests on the status branch."""
    return f"{PULLS_DIRECTORY}/{quote(url)}.json"


class _Line(msgspec.Struct):
    namespace: str
    name: str
    repository: str


_LINE = msgspec.json.Decoder(_Line)
_FORMAT = orjson.dumps(
    {"apiVersion": LINES_SCHEMA, "kind": "PackageVariantRecords"},
    option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE,
)


def is_lines_file(path: str) -> bool:
    """Tell whether a path of the state branch is a file with the records of many variants."""
    return path.startswith(f"{VARIANTS_DIRECTORY}/") and path.endswith(LINES_SUFFIX)


def split_lines(data: bytes) -> Iterable[bytes]:
    """Return the lines of a file, each with its newline; an empty file is one empty line."""
    return BytesIO(data) if data else [b""]


def branch_files(records: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files of a state branch with these records, by path. Deterministic.

    The records of variants are lines of `packagevariants/NAMESPACE/REPOSITORY.jsonl`, sorted by name.
    Every other record is a file, and so is what cannot be read as the record that its path names.
    """
    files: dict[str, bytes] = {}
    lines: dict[str, list[tuple[str, bytes]]] = {}
    for path, data in records.items():
        line = _line(data) if path.startswith(f"{VARIANTS_DIRECTORY}/") else None
        if is_lines_file(path):
            lines.setdefault(path, []).append(("", data))
        elif line is not None and path == _variant_path(line):
            lines.setdefault(_lines_path(line), []).append((line.name, data))
        else:
            files[path] = data
    if lines:
        files[VARIANTS_FORMAT] = _FORMAT
    return files | {path: b"".join(data for _, data in sorted(members)) for path, members in lines.items()}


def branch_records(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the records that the files of a state branch hold, by path; the inverse of `branch_files`.

    Lines that cannot be read stay under the path of their file.
    """
    records = {path: data for path, data in files.items() if not is_lines_file(path)}
    records.pop(VARIANTS_FORMAT, None)
    for path in filter(is_lines_file, files):
        for text in split_lines(files[path]):
            line = _line(text)
            if line is None:
                records[path] = records.get(path, b"") + text.rstrip(b"\n") + b"\n"
            else:
                records[_variant_path(line)] = text.rstrip(b"\n") + b"\n"
    return records


def _line(data: bytes) -> _Line | None:
    """Return what places a line; None if it is more or less than one readable line."""
    try:
        return _LINE.decode(data) if data.count(b"\n") <= 1 else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _variant_path(line: _Line) -> str:
    return f"{VARIANTS_DIRECTORY}/{line.namespace}/{line.name}.json"


def _lines_path(line: _Line) -> str:
    return f"{VARIANTS_DIRECTORY}/{line.namespace}/{quote(line.repository, safe='')}{LINES_SUFFIX}"


def check_schema(path: str, data: bytes) -> None:
    """Refuse a state of a newer version.

    Raises:
        ConfigurationError: The record has an unknown apiVersion.
    """
    # Compare bytes: a record of a newer version may not match any model.
    is_readable = any(f'"{schema}"'.encode() in data for schema in (SCHEMA, LINES_SCHEMA))
    if not is_readable and b'"reconciler.dev/' in data:
        message = "The state was written by a newer version of reconciler"
        raise ConfigurationError(message, location=Location(path), hint="Use that version, or a newer one.")


LOCK_SCHEMA = "reconciler.dev/v1alpha1"
LOCKS_DIRECTORY = "locks"
"""Directory of all locks: on the state branch, and on main if locks are reviewed."""

UPSTREAMS_DIRECTORY = f"{LOCKS_DIRECTORY}/upstreams"
IMAGES_PATH = f"{LOCKS_DIRECTORY}/functions/images.json"
"""The digests of function images, beside the locks of packages."""

EXACT = ("revision", "workspaceName")
"""The selectors that name one revision for good; every other one floats."""


_Digest = Annotated[str, Meta(pattern=r"^(?:id:)?sha256:[0-9a-f]{64}\Z")]


class UpstreamRequest(NamedTuple):
    """Upstream in a manifest: a package of a repository, and the selector of its revision."""

    repository: str
    package: str
    selector: Mapping[str, Any]


class UpstreamLock(NamedRecord, frozen=True, kw_only=True):
    """One floating upstream and the commit that it means, until it is decided anew.

    `selector` is how the manifest asks for it; empty means the latest published revision. `commit`
    decides; `ref` is the name that selected it, `tree` the package in it. `held` tells that
    a person chose it: it stays whatever the selector would choose.
    """

    api_version: str = LOCK_SCHEMA
    kind: str = "UpstreamLock"
    repository: str
    package: str
    selector: dict[str, Any]
    commit: Annotated[str, Meta(pattern=r"^[0-9a-f]{40}\Z")]
    tree: str
    ref: str = ""
    held: bool = False

    @property
    def request(self) -> UpstreamRequest:
        """The upstream in the manifest."""
        return UpstreamRequest(self.repository, self.package, self.selector)

    def answers(self, upstream: Mapping[str, Any]) -> bool:
        """Tell whether the lock is of the `spec.upstream` that the manifest has now."""
        return self.request == request_of(upstream)


class ImagesLock(Record, frozen=True, kw_only=True):
    """Digests of function images by name and tag; `id:` marks the digest of a local image."""

    api_version: str = LOCK_SCHEMA
    kind: Literal["FunctionImagesLock"] = "FunctionImagesLock"
    images: dict[str, _Digest] = field(default_factory=dict)

    def pinned(self, images: Mapping[str, str]) -> "ImagesLock":
        """Return the lock with these digests as well."""
        return replace(self, images=dict(sorted({**self.images, **images}.items())))


def request_of(upstream: Mapping[str, Any]) -> UpstreamRequest:
    """Return the package and selector of a manifest's `spec.upstream`."""
    selector = {field: value for field, value in upstream.items() if field not in ("repo", "package")}
    return UpstreamRequest(upstream.get("repo", ""), upstream.get("package", ""), selector)


def is_floating(upstream: Mapping[str, Any]) -> bool:
    """Tell whether a `spec.upstream` may select another commit later; an empty one selects none."""
    return bool(upstream) and not any(field in upstream for field in EXACT)


def lock_upstream(
    variant: ObjectName, upstream: Mapping[str, Any], *, commit: str, tree: str, ref: str, held: bool = False
) -> UpstreamLock | None:
    """Return the lock of a variant's upstream; None if that is exact.

    `upstream` is the manifest's `spec.upstream`.
    """
    if not is_floating(upstream):
        return None
    return UpstreamLock(
        namespace=variant.namespace,
        name=variant.name,
        **request_of(upstream)._asdict(),
        commit=commit,
        tree=tree,
        ref=ref,
        held=held,
    )


def lock_bytes(lock: UpstreamLock | ImagesLock) -> bytes:
    """Return the lock's canonical bytes: sorted keys, two-space indent, final newline. Deterministic."""
    return canonical_json(lock)


def lock_path(lock: UpstreamLock) -> str:
    """Return the lock's path, on the state branch and on main alike."""
    return f"{UPSTREAMS_DIRECTORY}/{lock.namespace}/{lock.name}.json"
