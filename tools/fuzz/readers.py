"""Targets for what repositories hold: manifests, the index, snapshots, headers of packages, state and locks.

Their readers isolate: what breaks in one is a problem with the reason Defect, which is a finding here.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec.structs import astuple

from reconciler.base.errors import ConfigurationError
from reconciler.base.reasons import Reason
from reconciler.base.values import read_record
from reconciler.dependencies.catalog.index import read_index
from reconciler.dependencies.dialects import read_manifest
from reconciler.dependencies.lock.format import PackageLock, read_locks, resolution_path
from reconciler.functions.resources import other_documents, read_resources
from reconciler.git.trees import PackageRefusedError
from reconciler.inventory.inventory import Source
from reconciler.names.ids import ObjectName, Oid
from reconciler.names.objects import File, Mode, TreeEntry
from reconciler.names.problems import Problem
from reconciler.policy import Limits, Policy
from reconciler.read.dependencies import parse_index
from reconciler.read.files import parse_file, yaml_limits
from reconciler.read.manifests import declared_objects, parse_manifests
from reconciler.read.repositories.trees import read_header
from reconciler.read.snapshot import parse_header, parse_snapshot_file, snapshot_limits
from reconciler.read.state import parse_pins, read_histories, read_state, read_statuses
from tools.fuzz.shapes import SEPARATOR

Target = Callable[[bytes], None]
_LIMITS, _POLICY = Limits(), Policy()
_COMMIT = Oid("c" * 40)


def _no_defect(problems: Iterable[Problem]) -> None:
    assert not (found := [p for p in problems if p.reason is Reason.DEFECT]), found


def manifests(data: bytes) -> None:
    """Files of manifests are objects and problems, the same twice; what a file declares is what it has."""
    files = {f"{number}.yaml": part for number, part in enumerate(data.split(SEPARATOR))}
    read = parse_manifests(files, _POLICY)
    _no_defect(read.problems)
    assert parse_manifests(files, _POLICY) == read
    for path, part in files.items():
        declared_objects(path, part, _POLICY)


def dialect(data: bytes) -> None:
    """Each document is a manifest of a dialect or of none; as a file of the index it is a version or not."""
    path = "index/web/v1.0.0/package.yaml"
    for value, place in parse_file(path, data, yaml_limits(_LIMITS)).objects:
        if isinstance(value, Mapping):
            for observed in (False, True):
                read = read_manifest(value, Source(place.location, marks=place, observed=observed))
                _no_defect(read.problems if read else ())
    folders = parse_index({path: data, "index/defaults.yaml": data}, _LIMITS)
    index = read_index(folders.documents)
    _no_defect((*folders.problems, *index.problems))
    assert index == read_index(reversed(folders.documents))


def snapshot(data: bytes) -> None:
    """Objects of a cluster, in YAML, JSON or a value a line, are read, with their bodies, or are problems."""
    for path in ("s/a.yaml", "s/a.json", "s/a.jsonl"):
        read = parse_snapshot_file(path, data, snapshot_limits(_LIMITS))
        _no_defect(read.problems)
        for each in read.objects:
            assert isinstance(each.name, str)
            assert isinstance(each.namespace, str)
            assert isinstance(each.body, dict)
    _no_defect(parse_header("s/snapshot.yaml", data).problems)


def kptfile_header(data: bytes) -> None:
    """The header of a Kptfile is texts, or an error."""
    read = read_header(data)
    assert all(isinstance(text, str) for text in (read.owner, read.location, read.error))
    for upstream in (read.upstream, read.upstream_lock):
        assert upstream is None or all(isinstance(text, str) for text in astuple(upstream))


def package(data: bytes) -> None:
    """The files of a package are resources and other documents, whatever its Kptfiles say."""
    texts = (data.split(SEPARATOR) + [b""] * 4)[:4]
    files = dict(zip(("Kptfile", "a.yaml", "sub/Kptfile", ".krmignore"), map(File.of, texts), strict=True))
    read = read_resources(files)
    for directory in read.packages():
        for resource in read.resources[directory]:
            assert resource.path in files
    read.asks("kpt.dev/bfs-rendering")
    list(other_documents(files))


class _Branch:
    """A branch with one commit, as the object database shows it: a tree is called as its path."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = files

    def subtree(self, _: Oid, path: str) -> str | None:
        return path if any(each.startswith(f"{path}/") for each in self.files) else None

    def checked_entries(self, tree: str) -> Iterator[TreeEntry]:
        below = (Path(path).relative_to(tree).parts for path in self.files if path.startswith(f"{tree}/"))
        for name, is_file in sorted({(parts[0], len(parts) == 1) for parts in below}):
            mode = Mode.REGULAR if is_file else Mode.TREE
            yield TreeEntry(name, mode, Oid(f"{tree}/{name}"))

    def blob(self, oid: Oid, limit: int) -> bytes:
        if len(self.files[oid]) > limit:
            raise PackageRefusedError(oid, "it is too large")
        return self.files[oid]

    def blob_at(self, _: Oid, path: str) -> Oid | None:
        return Oid(path) if path in self.files else None

    def ensure(self, oids: Iterable[Oid]) -> None:
        assert {*oids} <= self.files.keys()

    def last_touching(self, _: Oid, __: Iterable[str]) -> Mapping[str, Oid]:
        return {}


def state(data: bytes) -> None:
    """Branches of state and status are records and problems, the same twice, or of a newer version."""
    texts = (data.split(SEPARATOR) + [b""] * 4)[:4]
    for at, text in enumerate(texts):
        branch: Any = _Branch(
            {
                "packagevariants/default/edge.jsonl": text,
                "packagevariants/default/web.json": text,
                **dict.fromkeys(_RECORDS, text),
                "conditions/packagevariants/default/web.json": text,
                "observed/pulls/a.json": texts[(at + 1) % 4],
            }
        )
        read_histories(branch, _COMMIT, _LIMITS)
        statuses = read_statuses(branch, _COMMIT, _LIMITS)
        statuses.get(ObjectName("default", "web"))
        try:
            read = read_state(branch, _COMMIT, _LIMITS)
        except ConfigurationError:
            continue
        _no_defect(read.problems)
        assert read_state(branch, _COMMIT, _LIMITS) == read


_RECORDS = (
    "packagevariants/format.json",
    "packagevariantsets/default/fleet.json",
    "rollouts/default/fleet.json",
    "locks/upstreams/default/web.json",
    "lock.json",
    "applied.json",
    "deletions.json",
)


def locks(data: bytes) -> None:
    """Files of locks are locks, pins and problems."""
    lock, _, body = data.partition(SEPARATOR)
    with suppress(ValueError):
        files = {resolution_path(read_record(lock, PackageLock).resolution): body}
        _no_defect(read_locks({"locks/dev.json": lock, **files}).problems)
    _no_defect(read_locks({"locks/dev.json": lock}).problems)
    with suppress(ConfigurationError):
        pins, problems = parse_pins({"locks/upstreams/default/web.json": lock})
        _no_defect(problems)
        assert len(pins) + len(problems) == 1


TARGETS: dict[str, Target] = {
    "manifest": manifests,
    "dialect": dialect,
    "snapshot": snapshot,
    "kptfile-header": kptfile_header,
    "package": package,
    "state": state,
    "lock": locks,
}
