"""Find the versions of packages in files that other tools wrote, with their names and versions."""

from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from msgspec import Struct, field

from reconciler.base.errors import Location, UsageError
from reconciler.base.reasons import Reason
from reconciler.base.values import grouped
from reconciler.dependencies.catalog.index import (
    CONTENT_KINDS,
    INDEX_API_VERSION,
    VERSION_KIND,
    read_package_version,
)
from reconciler.dependencies.dialects.carvel import version_of
from reconciler.dependencies.dialects.crossplane import META_GROUPS
from reconciler.dependencies.dialects.reading import manifest_label, parse_image, parse_source
from reconciler.dependencies.versions import whole_version
from reconciler.git.repository import Mirror
from reconciler.git.trees import PackageRefusedError
from reconciler.inventory.inventory import Source
from reconciler.krm.values import mapping_at, mappings_at, value_at
from reconciler.krm.yaml import emit
from reconciler.names.ids import Oid, group_of
from reconciler.names.objects import file_path_error
from reconciler.names.problems import Problem
from reconciler.policy import Limits
from reconciler.read.dependencies import INDEX_SUFFIXES
from reconciler.read.files import SourcePosition, Walk, fetch_paths, parse_file, yaml_limits

MANIFESTS = ("crossplane.yaml", "upbound.yaml", "package/crossplane.yaml", "porter.yaml", "bundle.json")
"""Where a repository has the manifest of its package, the first that is there."""
_BUNDLES = ("porter.yaml", "bundle.json")
HEADER = "version.yaml"
"""The file of a version's folder that has its PackageVersion."""
_ASIDE = frozenset({"examples", "example", "tests", "test"})
"""Directories beside a Crossplane package that are none of it."""
_CARVEL = "data.packaging.carvel.dev"
_FILES = frozenset(name.rpartition("/")[2] for name in MANIFESTS)
_GROUPS = tuple(group.encode() for group in ("packaging.carvel.dev", *META_GROUPS))
_APIS = "apis.yaml"
_SOURCE_HINT = "Name it: `--source REGISTRY/NAME`, where an asterisk stands for the name in the manifest."
_VERSION_HINT = "Name its directory by the version, or import the tags of its repository with `--git`."
_TWO_HINT = (
    "Import the file from which the package was built alone: by its path, or with `--git` and `--path`."
)


class FoundVersion(Struct, frozen=True):
    """One version of a package: the fields of its header, and the files beside it."""

    source: str
    version: str
    files: Mapping[str, bytes]
    location: Location
    manifest: Mapping[str, Any]
    marks: SourcePosition

    def check(self) -> tuple[Problem, ...]:
        """Return what is wrong with the manifest, at its fields in the file that was read."""
        header = {"apiVersion": INDEX_API_VERSION, "kind": VERSION_KIND}
        head = {**header, "source": self.source, "version": self.version}
        source = Source(self.location, marks=self.marks)
        return read_package_version([(head, Source(self.location)), (self.manifest, source)]).problems


class FoundVersions(Struct):
    """The versions that were found, and what could not be understood."""

    versions: list[FoundVersion] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


class _Finder(Struct):
    """Collects the versions of files. `source` and `version` are the user's, for files without them."""

    source: str
    version: str
    limits: Limits
    collected: FoundVersions = field(default_factory=FoundVersions)
    metas: list[tuple[str, Mapping[str, Any], SourcePosition]] = field(default_factory=list)
    contents: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    charts: set[str] = field(default_factory=set)
    broken: list[tuple[str, Problem]] = field(default_factory=list)

    def read(self, path: str, data: bytes) -> None:
        directory, _, file = path.rpartition("/")
        if file == "Chart.yaml":
            self.charts.add(directory)
        content = parse_file(path, data, yaml_limits(self.limits))
        if file in _FILES or any(group in data for group in _GROUPS):
            self.collected.problems += (broken.problem for broken in content.broken)
        else:
            self.broken += ((path, broken.problem) for broken in content.broken)
        for value, place in content.objects:
            if not isinstance(value, Mapping):
                continue
            group, kind = group_of(str(value.get("apiVersion") or "")), value.get("kind")
            if group == _CARVEL and kind == "Package":
                spec = mapping_at(value, "spec")
                name, version = str(spec.get("refName") or ""), str(spec.get("version") or "")
                self._add(name, version, {"package.yaml": _text(value)}, value, place)
            elif group == "packaging.carvel.dev" and kind == "PackageRepository":
                self._repository(value, place)
            elif group in META_GROUPS:
                self.metas.append((path, value, place))
            elif kind in CONTENT_KINDS:
                self.contents.append((path, value))
            elif not value.get("apiVersion") and file in _BUNDLES:
                self._bundle(path, value, place)

    def _repository(self, value: Mapping[str, Any], place: SourcePosition) -> None:
        """Read the packages that a PackageRepository has in itself."""
        paths = value_at(value, "spec", "fetch", "inline", "paths")
        if not isinstance(paths, Mapping) or not all(isinstance(text, str) for text in paths.values()):
            message = "The packages of this PackageRepository are not in the file"
            hint = "Pull what it fetches, and import that directory."
            self._refuse(value, place, Reason.NOT_FOUND, message, hint)
            return
        for name, text in sorted(paths.items()):
            self.read(f"{place.path}/{name}", text.encode())

    def _bundle(self, path: str, value: Mapping[str, Any], place: SourcePosition) -> None:
        name, tag, _ = parse_image(str(value.get("reference") or ""))
        registry, own_name = str(value.get("registry") or "").rstrip("/"), str(value.get("name") or "")
        named = self.source.replace("*", own_name) if own_name else ""
        source = named or name or (f"{registry}/{own_name}" if registry and own_name else "")
        version = str(value.get("version") or tag or self.version)
        self._add(source, version, {path.rpartition("/")[2]: _text(value)}, value, place)

    def finish(self) -> FoundVersions:
        """Return everything, Crossplane packages with the APIs below their manifests.

        A broken file counts where it may be of a package, and where nothing else was found.
        """
        files_of = grouped((path.rpartition("/")[0], path) for path, _, _ in self.metas)
        below = grouped((self._root(path, files_of), value) for path, value in self.contents)
        is_empty = not self.metas and not self.collected.versions
        broken = ((self._root(path, files_of), problem) for path, problem in self.broken)
        self.collected.problems += (problem for root, problem in broken if is_empty or root is not None)
        for path, value, place in self.metas:
            directory, _, file = path.rpartition("/")
            other = next((path_there for path_there in files_of[directory] if path_there != path), None)
            if other is not None:
                message = f"{other.rpartition('/')[2]} describes the package of this directory, too"
                self._refuse(value, place, Reason.INVALID_MANIFEST, message, _TWO_HINT)
                continue
            files = {file: _text(value)}
            if apis := below.get(directory):
                files[_APIS] = b"---\n".join(_text(_slim(api)) for api in apis)
            source = self.source.replace("*", str(value_at(value, "metadata", "name") or ""))
            source = source or str(value_at(value, "spec", "repository") or "")
            named = next((p for p in reversed(directory.split("/")) if whole_version(p)), "")
            self._add(source, self.version or named, files, value, place)
        self._refuse_twins()
        return self.collected

    def _refuse_twins(self) -> None:
        """Take none of several files that are one version with different contents."""
        by_version = grouped(((item.source, item.version), item) for item in self.collected.versions)
        self.collected.versions.clear()
        for (source, version), alike in by_version.items():
            twins = [next((t for t in alike if t.files != item.files), None) for item in alike]
            for item, twin in zip(alike, twins, strict=True):
                if twin is None:
                    self.collected.versions.append(item)
                    continue
                message = f"{twin.location} is {source} {version}, too, with other content"
                hint = "Import the right one of the two alone."
                self._refuse(item.manifest, item.marks, Reason.INVALID_MANIFEST, message, hint)

    def _root(self, path: str, roots: Container[str]) -> str | None:
        """Return the directory of a file's Crossplane package; None for a chart's and for examples."""
        for parent in ("" if str(above) == "." else str(above) for above in PurePosixPath(path).parents):
            if parent in roots:
                is_aside = not _ASIDE.isdisjoint(path[len(parent) :].split("/")[:-1])
                return None if is_aside else parent
            if parent in self.charts:
                return None
        return None

    def _add(
        self,
        source: str,
        version: str,
        files: dict[str, bytes],
        value: Mapping[str, Any],
        place: SourcePosition,
    ) -> None:
        if not source:
            message = "The file does not say what the package is called in its registry"
            self._refuse(value, place, Reason.MISSING_FIELD, message, _SOURCE_HINT)
        elif not version:
            message = "Neither the file nor its directory says the version of the package"
            self._refuse(value, place, Reason.MISSING_FIELD, message, _VERSION_HINT)
        else:
            self.collected.versions.append(FoundVersion(source, version, files, place.location, value, place))

    def _refuse(
        self, value: Mapping[str, Any], place: SourcePosition, reason: Reason, message: str, hint: str
    ) -> None:
        label = manifest_label(value)
        self.collected.problems.append(Problem(place.location, reason, message, hint, label, cause=message))


def find_versions(
    files: Iterable[tuple[str, bytes]],
    *,
    source: str = "",
    version: str = "",
    limits: Limits = Limits(),  # noqa: B008 - a frozen value
) -> FoundVersions:
    """Return the package versions in files by path. Total.

    Carvel Packages and bundles name themselves. A Crossplane package is called `source`, with its own name
    for an asterisk, or as a Project has it; its version is `version`, else that of the nearest directory.
    Files with a PackageVersion are read by the index as they are.
    """
    finder = _Finder(source, version, limits)
    for path, data in files:
        finder.read(path, data)
    return finder.finish()


def find_tagged_versions(
    mirror: Mirror,
    *,
    path: str = "",
    source: str = "",
    limits: Limits = Limits(),  # noqa: B008 - a frozen value
) -> tuple[FoundVersions, int]:
    """Return the versions of all tags of a repository, and how many tags were looked at.

    Tags that are no versions have none. A tag has that of its manifest; without one, the packages of Carvel
    below packages/, or below the directory `path`.

    Raises:
        UnavailableError: The repository is unreadable.
    """
    collected, count, roots = FoundVersions(), 0, set[Oid]()
    for ref, commit in sorted(mirror.refs().items()):
        tag = ref.rpartition("/")[2]
        if not ref.startswith("refs/tags/") or not whole_version(version_of(tag)):
            continue
        count += 1
        listed = [path] if path else MANIFESTS
        manifest = next((name for name in listed if mirror.blob_at(commit, name)), None)
        root = path.strip("/") or "packages"
        if manifest is None:
            tree = mirror.subtree(commit, root)
            if tree is None or tree in roots:
                continue
            roots.add(tree)
        try:
            files = [
                (f"{tag}/{name}", data)
                for name, data in (
                    packages_at(mirror, commit, root, limits)
                    if manifest is None
                    else _at_tag(mirror, commit, manifest, limits)
                )
                if not path or name == path or name.rpartition("/")[2] not in _FILES
            ]
        except PackageRefusedError as error:
            where = Location(f"{tag}/{manifest or root}")
            collected.problems.append(Problem(where, Reason.MANIFEST_UNREADABLE, error.reason, subject=tag))
            continue
        tagged = find_versions(files, source=source, version=tag, limits=limits)
        collected.versions += tagged.versions
        collected.problems += tagged.problems
    return collected, count


def packages_at(mirror: Mirror, commit: Oid, root: str, limits: Limits) -> list[tuple[str, bytes]]:
    """Return the files below a directory of a repository of Carvel packages; none without it.

    Raises:
        PackageRefusedError: They are more or larger than the limits.
        UnavailableError: The repository is unreadable.
    """
    tree = mirror.subtree(commit, root)
    if tree is None:
        return []
    mirror.ensure(mirror.list_blobs(tree, limits))
    return [(f"{root}/{path}", file.data) for path, file in sorted(mirror.files(tree, limits).items())]


def _at_tag(mirror: Mirror, commit: Oid, manifest: str, limits: Limits) -> Iterator[tuple[str, bytes]]:
    """Yield the manifest of a package and, of Crossplane's, the files below it."""
    directory, _, name = manifest.rpartition("/")
    for file in fetch_paths(mirror, commit, directory, Walk(INDEX_SUFFIXES, depth=limits.path_depth))[0]:
        is_hidden = any(part.startswith(".") or part in _ASIDE for part in file.path.split("/"))
        if file.path == manifest or (name not in _BUNDLES and not is_hidden):
            yield file.path, mirror.blob(file.oid, limits.manifest_bytes)


def _text(value: Any) -> bytes:
    return f"{emit(value)}\n".encode()


def _slim(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return of an API or a Composition what tells what it is: schemas would make the index large."""
    slim = {key: document[key] for key in ("apiVersion", "kind") if key in document}
    slim["metadata"] = {"name": value_at(document, "metadata", "name")}
    spec = document.get("spec")
    if document.get("kind") == "Composition" or not isinstance(spec, Mapping):
        return slim
    short = {key: value for key, value in spec.items() if key not in ("versions", "conversion", "validation")}
    if isinstance(spec.get("versions"), list):
        versions = mappings_at(spec, "versions")
        short["versions"] = [{key: v[key] for key in ("name", "served") if key in v} for v in versions]
    return {**slim, "spec": short}


def version_folder(source: str, version: str) -> str:
    """Return the folder of a version, relative to the working copy; that of a Git source has no scheme.

    Raises:
        UsageError: The name or version would lead out of the index.
    """
    _, is_git, address = parse_source(source)[0].partition("://")
    path = PurePosixPath("index", address if is_git else source, version)
    if not source or not version or file_path_error(str(path)) or path.parts[0] != "index":
        raise UsageError(
            f"{source} {version} cannot be a folder of the index",
            hint="Write a name and version that a directory may have, without `..` and `.git`.",
        )
    return str(path)


def header_bytes(source: str, version: str, **optional: Any) -> bytes:
    """Return the PackageVersion of a version, without the fields that are empty."""
    head = {"apiVersion": INDEX_API_VERSION, "kind": VERSION_KIND, "source": source, "version": version}
    return _text(head | {name: value for name, value in optional.items() if value})


def index_files(version: FoundVersion, *, digest: str = "") -> tuple[str, dict[str, bytes]]:
    """Return the folder of a version in the index, and its files with the header by name.

    Raises:
        UsageError: The name or version would lead out of the index.
    """
    header = header_bytes(version.source, version.version, digest=digest)
    return version_folder(version.source, version.version), {**version.files, HEADER: header}
