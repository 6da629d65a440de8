"""Bring the versions that anything needs from registries and Git into the index, transitively."""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

from msgspec import Struct, field

from reconciler.base.defects import DefectError, guard
from reconciler.base.errors import Location, ReconcilerError, RefusedError, UnavailableError
from reconciler.base.progress import open_task
from reconciler.base.reasons import Reason
from reconciler.base.text import plural, verb
from reconciler.dependencies.catalog.index import collect_needs, find_missing
from reconciler.dependencies.dialects.reading import manifest_label, parse_image
from reconciler.dependencies.model.cluster import Catalogue, build_catalogue
from reconciler.dependencies.model.packages import (
    Candidate,
    Dialect,
    Ecosystem,
    Install,
    PackageId,
    PackageNeed,
    VersionRange,
    version_range,
)
from reconciler.dependencies.versions import Version, VersionError, whole_version
from reconciler.functions.archives import ArchiveReader
from reconciler.git.repository import Mirror
from reconciler.git.trees import PackageRefusedError
from reconciler.http.client import MissingError
from reconciler.inventory.inventory import SourcedDocument
from reconciler.krm.values import mapping_at, value_at
from reconciler.names.problems import Problem
from reconciler.policy import Limits, RegistryPolicy
from reconciler.read.dependencies import parse_version
from reconciler.read.files import parse_file, yaml_limits
from reconciler.sources.index_import import (
    FoundVersion,
    FoundVersions,
    find_tagged_versions,
    find_versions,
    index_files,
    packages_at,
)
from reconciler.sources.registry import RegistryClient, split_name

_REFERENCE = "vnd.docker.reference.type"
_SUFFIXES = (".yaml", ".yml", ".json")


class PulledFiles(NamedTuple):
    """The files of one image that describe packages, by path, and the digest that its tag has."""

    digest: str
    files: tuple[tuple[str, bytes], ...]


def pull_xpkg(client: RegistryClient, name: str, tag: str, archives: ArchiveReader) -> PulledFiles:
    """Return the package.yaml of a Crossplane package: of the layer that is annotated as its base.

    Source: crossplane, internal/xpkg, the layer that is annotated io.crossplane.xpkg: base.

    Raises:
        RefusedError: It has no such layer, or no package.yaml there.
        UnavailableError: The registry does not answer.
    """
    top = client.manifest(name, tag)
    # Of several platforms each has the same package.yaml.
    platforms = [platform for platform in top.manifests if not platform.annotation(_REFERENCE)]
    manifest = client.manifest(name, platforms[0].digest) if platforms else top
    base = [layer for layer in manifest.layers if layer.annotation("io.crossplane.xpkg") == "base"]
    if not base:
        what = f"{name}:{tag} is annotated io.crossplane.xpkg: base"
        message = f"No layer of {what}, so it is no package of Crossplane"
        raise RefusedError(message, hint="Build it with `crossplane xpkg build`.")
    layer = io.BytesIO(client.blob(name, base[0]))
    files = tuple(archives.read(layer, f"The base layer of {name}:{tag}", "package.yaml".__eq__))
    if not files:
        raise RefusedError(f"The base layer of {name}:{tag} has no package.yaml")
    return PulledFiles(top.digest, files)


def pull_bundle(client: RegistryClient, name: str, tag: str) -> PulledFiles:
    """Return the bundle.json of a bundle of Porter: the configuration of the manifest that an index names.

    Source: CNAB, cnab-to-oci: the manifest annotated io.cnab.manifest.type: config.

    Raises:
        RefusedError: It is no bundle.
        UnavailableError: The registry does not answer.
    """
    top = client.manifest(name, tag)
    named = next((m for m in top.manifests if m.annotation("io.cnab.manifest.type") == "config"), None)
    config = client.manifest(name, named.digest).config if named is not None else None
    if config is None:
        lacks = f"{name}:{tag} has no manifest that is annotated io.cnab.manifest.type: config"
        raise RefusedError(f"{lacks}, so it is no bundle", hint="Publish it with `porter publish`.")
    return PulledFiles(top.digest, (("bundle.json", client.blob(name, config)),))


def pull_packages(client: RegistryClient, name: str, reference: str, archives: ArchiveReader) -> PulledFiles:
    """Return the files below packages/ of a repository of Carvel packages, an image or a bundle of imgpkg.

    Its layers hold nothing else, and are read from the cache where they did not change.

    Raises:
        RefusedError: A layer is larger than the limit, or is no archive.
        UnavailableError: The registry does not answer.
    """
    manifest = client.manifest(name, reference)
    files: dict[str, bytes] = {}
    for layer in manifest.layers:
        data = io.BytesIO(client.cached_blob(name, layer))
        files |= archives.read(data, f"A layer of {name}:{reference}", _is_packaged)
    return PulledFiles(manifest.digest, tuple(sorted(files.items())))


def _is_packaged(path: str) -> bool:
    return path.startswith("packages/") and path.endswith(_SUFFIXES)


class _SettingError(RefusedError):
    """A field of a PackageRepository is wrong, or names nothing that is there."""

    def __init__(self, reason: Reason, message: str, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


def _reason(error: ReconcilerError) -> Reason:
    """Return why a package or repository was not read: what is refused is there, and not as it must be."""
    match error:
        case DefectError():
            return Reason.DEFECT
        case MissingError():
            return Reason.NOT_FOUND
        case UnavailableError():
            return Reason.REPOSITORY_UNAVAILABLE
        case _SettingError():
            return error.reason
    return Reason.INVALID_PACKAGE


_GIT = "://"
_ROUNDS = 100
"""Longest chain of requirements that is followed."""


class SyncRequest(Struct, frozen=True):
    """The needs of installs, and of every version of the catalogue."""

    installs: tuple[Install, ...]
    catalogue: Catalogue
    repositories: tuple[SourcedDocument, ...] = ()
    """The PackageRepository manifests."""
    present: Mapping[str, bytes] = field(default_factory=dict)
    """Files of the index by path."""
    every: bool = False
    """Whether all versions are taken, and not only those in a range of a need."""
    checks_tags: bool = False
    """Whether digests of present versions are compared with their tags, one request each."""


class NewVersion(NamedTuple):
    """A version that the index does not have: where it comes from, its folder, and its files by name."""

    origin: str
    folder: str
    files: Mapping[str, bytes]
    candidate: Candidate


class SyncResult(Struct):
    """The new versions, problems, and notes about versions that are withdrawn or not understood.

    With `is_idle` no manifest and no version in the index needs a package of a registry.
    """

    versions: list[NewVersion] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    is_idle: bool = False


def find_new_versions(
    request: SyncRequest,
    client: RegistryClient,
    open_mirror: Callable[[str], Mirror],
    policy: RegistryPolicy,
    limits: Limits,
) -> SyncResult:
    """Return the versions to add. Reads registries and Git; writes nothing.

    What one package lacks stops no other one.
    """
    walk = _Walk(request, client, open_mirror, policy, limits)
    walk.read_repositories()
    for _ in range(_ROUNDS):
        if not walk.advance():
            break
    walk.compare()
    walk.note_missing()
    walk.result.versions.sort(key=lambda version: version.folder)
    walk.result.problems.sort()
    walk.result.notes.sort()
    walk.result.is_idle = not (request.installs or request.present or request.repositories)
    return walk.result


class _Tagged(NamedTuple):
    """One version of a package in a registry, by the tag that it has there."""

    id: PackageId
    tag: str
    version: Version


class _Walk(Struct):
    """The walk from needs to versions, and from these to further needs."""

    request: SyncRequest
    client: RegistryClient
    open_mirror: Callable[[str], Mirror]
    policy: RegistryPolicy
    limits: Limits
    result: SyncResult = field(default_factory=SyncResult)
    tags: dict[PackageId, dict[str, _Tagged]] = field(default_factory=dict)
    """Versions by package and plain number, of packages that were listed."""
    offered: dict[PackageId, dict[str, tuple[str, FoundVersion]]] = field(default_factory=dict)
    """Versions that were read already, with their origin: of package repositories and of Git."""
    handled: set[tuple[PackageId, str]] = field(default_factory=set)
    contested: set[tuple[PackageId, str]] = field(default_factory=set)
    """Versions that two package repositories have with different contents."""
    listed: set[PackageId] = field(default_factory=set)
    """Packages that were asked for, with or without success."""

    @contextmanager
    def _unit(self, subject: str, location: Location, *, notes: bool = False) -> Iterator[None]:
        """Work on one package or repository: what fails there is its problem, and stops no other one.

        With `notes` only a note tells what is wrong with its content: that is published, and stays so.
        """
        try:
            with guard(subject):
                yield
        except ReconcilerError as error:
            is_away = isinstance(error, UnavailableError) and not isinstance(error, MissingError)
            if notes and not is_away and not isinstance(error, DefectError):
                self.result.notes.append(f"{subject} is left out: {error}")
                return
            self.result.problems.append(Problem(location, _reason(error), str(error), error.hint, subject))

    # Package repositories of Carvel

    def read_repositories(self) -> None:
        """Read the packages of every PackageRepository; which of them are taken, the needs decide."""
        for document in self.request.repositories:
            location, label = document.source.at("spec", "fetch"), manifest_label(document.value)
            with self._unit(label, location):
                fetch = mapping_at(document.value, "spec", "fetch")
                origin, versions = self._repository(fetch, document.source.location.path)
                self._note_unread(versions)
                if not (versions.versions or versions.problems):
                    self.result.notes.append(f"{label} has no package below packages/")
                for version in versions.versions:
                    self._offer(version, origin, label, location)

    def _offer(self, version: FoundVersion, origin: str, label: str, location: Location) -> None:
        """Offer a version of a package repository; none if another one has it with other content."""
        key = (PackageId(Ecosystem.CARVEL, version.source), _plain(version.version))
        there, other = self.offered.setdefault(key[0], {}).setdefault(key[1], (origin, version))
        if other.files != version.files and key not in self.contested:
            self.contested.add(key)
            message = f"{there} has {version.source} {version.version}, too, with other content"
            hint = "Remove one of the two, or import the right one alone: `reconciler index import PATH`."
            self.result.problems.append(Problem(location, Reason.INVALID_MANIFEST, message, hint, label))

    def _repository(self, fetch: Mapping[str, Any], path: str) -> tuple[str, FoundVersions]:
        """Return where a package repository is, and its packages; `path` is the file of its manifest."""
        if isinstance(paths := value_at(fetch, "inline", "paths"), Mapping):
            texts = ((name, text) for name, text in sorted(paths.items()) if isinstance(text, str))
            files = ((f"{path}/{name}", text.encode()) for name, text in texts if _is_packaged(name))
            return path, find_versions(files, limits=self.limits)
        ways = ("imgpkgBundle", "image", "git")
        way = next((key for key in ways if isinstance(fetch.get(key), Mapping)), "")
        value = mapping_at(fetch, way)
        if way == "git":
            try:
                return self._git_repository(value)
            except PackageRefusedError as error:
                raise RefusedError(f"{value.get('url')}: {error}") from error
        written = str(value.get("image" if way == "imgpkgBundle" else "url") or "")
        if not written:
            message = (
                "What this PackageRepository fetches is neither imgpkgBundle nor image, git or inline.paths"
            )
            hint = "Pull it, and bring it in with `reconciler index import PATH`."
            raise _SettingError(Reason.VALIDATION_ERROR, message, hint)
        name, tag, digest = parse_image(written)
        range_ = None if digest else _selected_range(value.get("tagSelection"))
        if range_ is not None:
            tag = _highest(self.client.tags(name), range_)
            if not tag:
                message = f"No tag of {name} is {range_}"
                raise _SettingError(Reason.NOT_FOUND, message, "Correct its tagSelection.")
        reference = digest or tag or "latest"
        pulled = pull_packages(self.client, name, reference, self.archives())
        return name, find_versions(_below(f"{name}/{reference}", pulled), limits=self.limits)

    def _git_repository(self, value: Mapping[str, Any]) -> tuple[str, FoundVersions]:
        url, below = str(value.get("url") or ""), str(value.get("subPath") or "").strip("/")
        mirror = self.open_mirror(url)
        refs, ref = mirror.refs(), str(value.get("ref") or "").removeprefix("origin/")
        range_ = _selected_range(value.get("refSelection"))
        if range_ is not None:
            tags = (name.removeprefix("refs/tags/") for name in refs if name.startswith("refs/tags/"))
            ref = _highest(tags, range_) or ref
        names = (f"refs/tags/{ref}", f"refs/heads/{ref or mirror.head_branch}", ref)
        commit = next((refs[name] for name in names if name in refs), None)
        if commit is None:
            message = f"{url} has no branch or tag {ref}"
            raise _SettingError(Reason.NOT_FOUND, message, "Correct the ref of its fetch.")
        files = packages_at(mirror, commit, f"{below}/packages" if below else "packages", self.limits)
        return url, find_versions(((f"{url}/{path}", data) for path, data in files), limits=self.limits)

    # Needs

    def advance(self) -> bool:
        """Take the versions that are needed now; tell whether any were new."""
        catalogue = self.catalogue()
        due: list[_Tagged] = []
        count = len(self.result.versions)
        needed = collect_needs(self.request.installs, catalogue).items()
        demands = [(catalogue.find(id_), needs) for id_, needs in needed]
        places: dict[PackageId, Location] = {}
        for package, needs in demands:
            places.setdefault(package, min(need.location for need in needs))
        self._list(places)
        for package, needs in demands:
            for plain, (origin, version) in self.offered.get(package, {}).items():
                number = whole_version(version.version)
                if number and self._is_due(package, plain, number, needs):
                    with self._unit(f"{package} {version.version}", Location(package.name)):
                        self._add(origin, version)
            listed = self.tags.get(package, {}).items()
            due += [tagged for plain, tagged in listed if self._is_due(package, plain, tagged.version, needs)]
        room = max(self.policy.versions - len(self.result.versions), 0)
        if (waiting := len(due) - room) > 0:
            rest = f"{plural(waiting, 'version')} {verb(waiting, 'is', 'are')}"
            self.result.notes.append(f"{rest} left to the next run: registries.versions")
            due = due[:room]
        with open_task("pulling versions", len(due)) as task, ThreadPoolExecutor(self.policy.at_once) as pool:
            for tagged, pulled in zip(due, pool.map(self._pull, due), strict=True):
                task.advance(f"{tagged.id.name} {tagged.tag}")
                if pulled is not None:
                    self._take(tagged, pulled)
        return len(self.result.versions) > count and room > 0

    def catalogue(self) -> Catalogue:
        """Return the catalogue with the new versions."""
        present = (c for versions in self.request.catalogue.packages.values() for c in versions)
        return build_catalogue([*present, *(version.candidate for version in self.result.versions)])

    def _is_due(self, id_: PackageId, plain: str, version: Version, needs: Iterable[PackageNeed]) -> bool:
        """Tell whether a version is needed and not handled; it is handled then."""
        key = (id_, plain)
        is_decided = key in self.handled or key in self.contested
        if is_decided or not (self.request.every or any(n.range.allows(version) for n in needs)):
            return False
        self.handled.add(key)
        there = [c.version.text for c in self.request.catalogue.candidates(id_)]
        refused = [refusal.version for refusal in self.request.catalogue.refused.get(id_.name, ())]
        return plain not in map(_plain, (*there, *refused))

    def _list(self, places: Mapping[PackageId, Location]) -> None:
        """List the versions of each package once: those of registries side by side, as one may hang.

        Versions of Carvel are in package repositories, and a bundle without a registry is named elsewhere.
        """
        ids = [
            id_
            for id_ in sorted(places.keys() - self.listed)
            if id_.ecosystem is Ecosystem.XPKG or (id_.ecosystem is Ecosystem.BUNDLE and "/" in id_.name)
        ]
        self.listed |= set(ids)

        def list_tags(id_: PackageId) -> None:
            with self._unit(str(id_), places[id_]):
                # Porter writes an underscore for the plus that tags cannot have.
                is_bundle = id_.ecosystem is Ecosystem.BUNDLE
                tags = self.client.tags(id_.name)
                numbers = ((tag, whole_version(tag.replace("_", "+") if is_bundle else tag)) for tag in tags)
                self.tags[id_] = {_plain(v.text): _Tagged(id_, tag, v) for tag, v in numbers if v}

        with ThreadPoolExecutor(self.policy.at_once) as pool:
            list(pool.map(list_tags, (id_ for id_ in ids if _GIT not in id_.name)))
        for id_ in (id_ for id_ in ids if _GIT in id_.name):
            with self._unit(str(id_), places[id_]):
                url, _, directory = id_.name.partition("//")[2].partition("//")
                mirror = self.open_mirror(f"{id_.name.partition(_GIT)[0]}{_GIT}{url}")
                path = f"{directory}/crossplane.yaml" if directory else ""
                versions, _ = find_tagged_versions(mirror, path=path, source=id_.name, limits=self.limits)
                self._note_unread(versions)
                self.offered[id_] = {_plain(v.version): (id_.name, v) for v in versions.versions}

    def archives(self) -> ArchiveReader:
        """Return a reader of the layers of one image."""
        return ArchiveReader(self.limits, self.policy.unpacked_bytes)

    def _pull(self, tagged: _Tagged) -> PulledFiles | None:
        name, tag = tagged.id.name, tagged.tag
        with self._unit(f"{tagged.id} {tag}", Location(name), notes=True):
            if tagged.id.ecosystem is Ecosystem.BUNDLE:
                return pull_bundle(self.client, name, tag)
            return pull_xpkg(self.client, name, tag, self.archives())
        return None

    def _take(self, tagged: _Tagged, pulled: PulledFiles) -> None:
        name, label = tagged.id.name, f"{tagged.id} {tagged.tag}"
        with self._unit(label, Location(name), notes=True):
            files = _below(f"{name}/{tagged.tag}", pulled)
            versions = find_versions(files, source=name, version=tagged.version.text, limits=self.limits)
            self._note_unread(versions)
            if not (versions.versions or versions.problems):
                self.result.notes.append(f"{label} is left out: nothing in it says what the package needs")
            for version in versions.versions:
                self._add(split_name(name)[0], version, pulled.digest)

    def _add(self, origin: str, version: FoundVersion, digest: str = "") -> None:
        folder, files = index_files(version, digest=digest)
        reading = parse_version({f"{folder}/{name}": data for name, data in files.items()})
        if not reading.candidates:
            why = reading.problems[0].message if reading.problems else "it describes no package"
            self.result.notes.append(f"{version.source} {version.version} is left out: {why}")
            return
        self.result.versions.append(NewVersion(origin, folder, files, reading.candidates[0]))

    def note_missing(self) -> None:
        """Tell of each package that installs lack still why no other sync would bring it."""
        if len(self.result.versions) >= self.policy.versions:
            return
        for package in find_missing([(self.request.installs, self.catalogue())]):
            id_, files = package.id, "`reconciler index import PATH` takes it from files"
            numbers = [tagged.version for tagged in self.tags.get(id_, {}).values()]
            numbers += filter(None, map(whole_version, self.offered.get(id_, {})))
            if any(map(package.range.allows, numbers)):
                continue  # that it is left out, or contested, is told
            if id_.ecosystem is Ecosystem.CARVEL:
                why = f"no PackageRepository among the manifests has it; {files}"
            elif id_ in self.tags or id_ in self.offered:
                why = f"no tag of {id_.name} fits; publish one, or ask for another range"
            elif id_.ecosystem is Ecosystem.BUNDLE and id_ not in self.listed:
                why = f"it names no registry; {files}"
            else:
                continue  # a problem tells why its tags are not known, or it is published elsewhere
            self.result.notes.append(f"{package} is still missing: {why}")

    # What is there already

    def compare(self) -> None:
        """Tell the versions that are gone where they came from, or have another content there."""
        for id_, candidates in self.request.catalogue.packages.items():
            for candidate in candidates:
                with self._unit(str(candidate.id), candidate.location):
                    self._compare(id_, candidate)

    def _compare(self, id_: PackageId, candidate: Candidate) -> None:
        plain = _plain(candidate.version.text)
        if id_ in self.tags and candidate.digest:
            tagged = self.tags[id_].get(plain)
            if tagged is None:
                self._withdrawn(candidate, "its tag is gone from the registry")
            elif self.request.checks_tags:
                now = self.client.digest(tagged.id.name, tagged.tag)
                if now != candidate.digest:
                    was = candidate.digest[:19]
                    self._moved(candidate, f"its tag now names {now[:19]}, and it was {was}")
        elif id_ in self.offered and id_.ecosystem is Ecosystem.CARVEL:
            if plain not in self.offered[id_]:
                self._withdrawn(candidate, "no PackageRepository has it any more")
            elif (id_, plain) not in self.contested:
                self._compare_content(candidate, self.offered[id_][plain][1])

    def _withdrawn(self, candidate: Candidate, why: str) -> None:
        if not candidate.withdrawn:
            step = f"set `withdrawn:` in {candidate.location.path}, or `reconciler index remove` it"
            self.result.notes.append(f"{candidate.id} {candidate.version} may be withdrawn: {why}; {step}")

    def _compare_content(self, candidate: Candidate, version: FoundVersion) -> None:
        directory, limits = candidate.location.path.rpartition("/")[0], yaml_limits(self.limits)
        for name, data in version.files.items():
            path = f"{directory}/{name}"
            texts = (self.request.present.get(path, data), data)
            was, now = ([value for value, _ in parse_file(path, text, limits).objects] for text in texts)
            if was != now:
                self._moved(candidate, "it was published anew with another content")

    def _moved(self, candidate: Candidate, why: str) -> None:
        message = f"{candidate.id} {candidate.version} is not what it was: {why}"
        hint = "Ask who publishes it. `reconciler index remove` and another sync take what is there now."
        problem = Problem(candidate.location, Reason.UPSTREAM_TAG_MOVED, message, hint, str(candidate.id))
        self.result.problems.append(problem)

    def _note_unread(self, versions: FoundVersions) -> None:
        self.result.notes += (f"{p.location} is left out: {p.message}" for p in versions.problems)


def _below(directory: str, pulled: PulledFiles) -> Iterator[tuple[str, bytes]]:
    return ((f"{directory}/{path}", data) for path, data in pulled.files)


def _plain(version: str) -> str:
    return version.removeprefix("v")


def _highest(tags: Iterable[str], range_: VersionRange) -> str:
    fitting = [version for tag in tags if (version := whole_version(tag)) and range_.allows(version)]
    return max(fitting, key=lambda version: version.height).text if fitting else ""


def _selected_range(selection: object) -> VersionRange | None:
    """Return the range of a tagSelection or refSelection of Carvel; None without one."""
    semver = value_at(selection, "semver")
    if not isinstance(semver, Mapping):
        return None
    prereleases = semver.get("prereleases")
    named = prereleases.get("identifiers") or () if isinstance(prereleases, Mapping) else None
    admitted = tuple(map(str, named)) if named is not None else None
    constraints = str(semver.get("constraints") or "")
    try:
        return version_range(Dialect.CARVEL, constraints, prereleases=admitted)
    except VersionError as error:
        message = f"{constraints} is no range of versions: {error}"
        raise _SettingError(Reason.INVALID_CONSTRAINT, message, "") from error
