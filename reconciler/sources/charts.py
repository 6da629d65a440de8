"""Charts of registries, of repositories with an index, and of Git: the newest in a range, and its content."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Annotated, Any, NamedTuple

import msgspec

from reconciler.base.errors import UnavailableError, UsageError
from reconciler.base.lazy import regex
from reconciler.base.suggestions import close_names
from reconciler.dependencies.versions import (
    Grammar,
    Version,
    VersionError,
    parse_constraint,
    parse_strict,
    precedence,
)
from reconciler.git.repository import Mirror
from reconciler.git.urls import without_user
from reconciler.http.client import resolve
from reconciler.krm.values import value_at
from reconciler.krm.yaml import YamlError, YamlLimits, load_documents
from reconciler.names.ids import Oid
from reconciler.names.objects import Files
from reconciler.names.refs import HEADS, TAGS
from reconciler.policy import Limits
from reconciler.sources.registry import DigestError, RegistryClient

OCI = "oci://"
_CONTENT = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
_COMMIT = regex(r"[0-9a-f]{40}")


class _IndexEntry(msgspec.Struct):
    urls: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    digest: str | None = None


class FoundChart(NamedTuple):
    """A version of a chart: where its archive is, and the digest that an index states for it, if any.

    `beyond` is the newest version of all where the range leaves that out, else "".
    """

    version: str
    address: str
    url: str
    digest: str = ""
    beyond: str = ""


class FetchedChart(NamedTuple):
    """The archive of a chart, verified, and where it came from, with its digest."""

    archive: bytes
    address: str


class ChartInGit(NamedTuple):
    """The files of a chart in a Git repository, and where they came from: the address and the commit.

    `beyond` is the newest version of all where the range leaves that out, else "".
    """

    files: Files
    address: str
    beyond: str = ""


def find_chart_version(address: str, version: str, client: RegistryClient, limits: Limits) -> FoundChart:
    """Return the newest version of a chart in a range, of a registry or a repository with an index.

    `address` is `oci://HOST/NAME`, or `https://HOST/PATH/NAME` where `https://HOST/PATH` has an index.yaml.
    `version` is one or a range as Helm writes it, empty for the newest that is no prerelease.

    Raises:
        UsageError: The range is none.
        UnavailableError: There is no such chart or version, or the index is none.
    """
    if address.startswith(OCI):
        name = address.removeprefix(OCI)
        # A tag has no `+`: Helm writes `_` for it.
        tags = {tag.replace("_", "+"): tag for tag in client.tags(name)}
        chosen = _chosen(tags, version, address)
        return FoundChart(chosen, address, f"{address}:{tags[chosen]}", beyond=_beyond(tags, chosen))
    repository, _, name = address.rpartition("/")
    entries = _entries(client.file(f"{repository}/index.yaml"), repository, limits)
    if name not in entries:
        suggestion = ", ".join(close_names(name, entries)) or ", ".join(sorted(entries)[:5])
        raise UnavailableError(
            f"{repository} has no chart {name}",
            hint=f"Ask for one that it has: {suggestion}." if suggestion else "",
        )
    listed = {str(entry.get("version")): entry for entry in entries[name] if isinstance(entry, Mapping)}
    chosen = _chosen(listed, version, address)
    try:
        entry = msgspec.convert(listed[chosen], _IndexEntry)
        url = resolve(f"{repository}/", entry.urls[0])
    except (msgspec.ValidationError, ValueError) as error:
        message = f"The index of {repository} has no usable address for {name} {chosen}: {error}"
        raise UnavailableError(message) from error
    digest = (entry.digest or "").removeprefix("sha256:")
    return FoundChart(chosen, address, url, digest, _beyond(listed, chosen))


def fetch_chart(listing: FoundChart, client: RegistryClient) -> FetchedChart:
    """Return the archive of a version that is listed.

    Raises:
        UnavailableError: It is not there, or is no chart.
        DigestError: It is another one than its digest.
    """
    if listing.url.startswith(OCI):
        repository, _, tag = listing.url.removeprefix(OCI).rpartition(":")
        manifest = client.manifest(repository, tag)
        layer = next((layer for layer in manifest.layers if layer.media_type == _CONTENT), None)
        if layer is None:
            hint = "Its manifest has no layer of Helm."
            raise UnavailableError(f"{OCI}{repository}:{tag} is no chart", hint=hint)
        return FetchedChart(client.blob(repository, layer), f"{OCI}{repository}:{tag}@{manifest.digest}")
    archive = client.file(listing.url)
    digest = hashlib.sha256(archive).hexdigest()
    if listing.digest and listing.digest != digest:
        stated = f"should be sha256:{listing.digest[:12]}, and is sha256:{digest[:12]}"
        hint = "Nothing of it was used. Ask who runs the repository."
        raise DigestError(f"{without_user(listing.url)} {stated}", hint=hint)
    return FetchedChart(archive, f"{listing.address}:{listing.version}@sha256:{digest}")


def _entries(data: bytes, repository: str, limits: Limits) -> Mapping[str, Any]:
    bounds = YamlLimits(
        max_bytes=len(data), max_documents=1, max_nodes=limits.yaml_nodes, max_depth=limits.yaml_depth
    )
    try:
        documents = load_documents(data, bounds)
    except YamlError as error:
        message = f"{repository}/index.yaml:{error.line}: {error.message}"
        raise UnavailableError(message, hint=error.hint or None) from error
    entries = value_at(documents[0].value if documents else None, "entries")
    if not isinstance(entries, Mapping):
        hint = "Name https://REPOSITORY/NAME, where https://REPOSITORY/index.yaml lists the charts."
        raise UnavailableError(f"{repository}/index.yaml is no index of charts", hint=hint)
    return {name: versions for name, versions in entries.items() if isinstance(versions, list)}


def find_chart_in_git(mirror: Mirror, address: str, path: str, version: str, limits: Limits) -> ChartInGit:
    """Return the chart of a directory of a fetched Git repository.

    `version` is a tag, a branch or a commit, or a range of versions: the tags `v1.2.0`, `NAME-1.2.0` and
    `PATH/v1.2.0` are versions. It is empty for the newest of those, and the default branch without any.

    Raises:
        UnavailableError: There is no such ref, or no such directory.
        PackageRefusedError: The directory has what no package may have.
    """
    refs, address, beyond = mirror.refs(), without_user(address), ""
    commit = refs.get(f"{TAGS}{version}") or refs.get(f"{HEADS}{version}")
    if commit is None and _COMMIT.fullmatch(version) and mirror.bring(Oid(version)):
        commit = Oid(version)
    if commit is None:
        tags = dict(_versions((ref.removeprefix(TAGS) for ref in refs if ref.startswith(TAGS)), path))
        if tags or version:
            chosen = _chosen(tags, version, address)
            commit, beyond = refs[f"{TAGS}{tags[chosen]}"], _beyond(tags, chosen)
        elif (head := refs.get(f"{HEADS}{mirror.head_branch}")) is not None:
            commit = head
        else:
            raise UnavailableError(f"{address} has neither tags of versions nor a default branch")
    tree = mirror.subtree(commit, path)
    if tree is None:
        raise UnavailableError(f"{address} has no directory {path} at {version or commit[:12]}")
    mirror.ensure(mirror.list_blobs(tree, limits))
    return ChartInGit(mirror.files(tree, limits), f"{address}@{commit}", beyond)


def _versions(tags: Iterable[str], path: str) -> Iterator[tuple[str, str]]:
    """Yield version and tag of each tag that is a version of the chart at a path.

    Where tags name the chart, those without a name are of something else in the repository. The tag
    `web-admin-1.2.0` is none of `web`.
    """
    name = path.rpartition("/")[2]
    tag_prefixes = ("", *(f"{prefix}{mark}" for prefix in {path, name} if prefix for mark in "/-"))
    starts = {
        tag: start
        for tag in tags
        for start in tag_prefixes
        if tag.startswith(start) and _ascending([tag.removeprefix(start)])
    }
    is_named = any(starts.values())
    yield from ((tag.removeprefix(start), tag) for tag, start in starts.items() if bool(start) == is_named)


def _chosen(versions: Iterable[str], version: str, address: str) -> str:
    versions = list(versions)
    chosen = choose_version(versions, version)
    if not chosen:
        suggestion = ", ".join(close_names(version, versions) or list(_ascending(versions))[-3:])
        message = f"{address} has no version {version or 'at all'}"
        raise UnavailableError(message, hint=f"Ask for one that it has: {suggestion}." if suggestion else "")
    return chosen


def _beyond(versions: Iterable[str], chosen: str) -> str:
    """Return the newest version that is no prerelease if it is newer than the chosen one, else ""."""
    newest, order = choose_version(versions, ""), list(_ascending(versions))
    return newest if newest and order.index(newest) > order.index(chosen) else ""


def choose_version(versions: Iterable[str], constraint_text: str) -> str:
    """Return the newest of some versions that a range allows, "" if none does.

    Raises:
        UsageError: The range is none.
    """
    try:
        constraint = parse_constraint(constraint_text or "*", Grammar.MASTERMINDS)
    except VersionError as error:
        hint = "Write it like 1.2.3, or ^1.2 as Helm does."
        raise UsageError(f"--version {constraint_text}: {error}", hint=hint) from error
    fitting = [text for text, version in _ascending(versions).items() if constraint.allows(version)]
    return fitting[-1] if fitting else ""


def _ascending(versions: Iterable[str]) -> dict[str, Version]:
    parsed = {}
    for text in versions:
        with suppress(VersionError):
            parsed[text] = parse_strict(text.removeprefix("v"))
    return dict(sorted(parsed.items(), key=lambda item: (precedence(item[1]), item[0])))
