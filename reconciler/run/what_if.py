"""The run of `lock what-if`: find the package, variant or interface that a change names."""

from collections.abc import Collection, Iterable
from pathlib import Path

from reconciler.base.errors import Location, UsageError
from reconciler.base.suggestions import suggest
from reconciler.dependencies.catalog.index import parse_id
from reconciler.dependencies.dialects.reading import canonical_interface
from reconciler.dependencies.model.packages import VARIANT_KIND, Candidate
from reconciler.dependencies.versions.version import VersionError
from reconciler.dependencies.what_if import (
    Hypothesis,
    bump,
    change_default,
    hypothetical_version,
    publish,
    read_hypothetical,
    withdraw,
)
from reconciler.inventory.inventory import Inventory, Source
from reconciler.policy import Limits
from reconciler.read.documents import parse_file, yaml_limits
from reconciler.resolve import ResolvedFleet
from reconciler.resolve.dependency_roots import install_keys

_FORMS = (
    "Write PACKAGE@VERSION (the name as `reconciler lock` prints it, without its ecosystem), "
    "VARIANT@REVISION, or INTERFACE=ECOSYSTEM:PACKAGE."
)


def find_hypothesis(
    change: str, fleet: ResolvedFleet, inventory: Inventory, *, removes: bool, manifest: Path | None
) -> Hypothesis:
    """Return the change that a person wrote: PACKAGE@VERSION, VARIANT@REVISION or INTERFACE=PACKAGE.

    Raises:
        UsageError: It names nothing that is known, or its manifest is not understood.
    """
    candidates = {
        candidate
        for cluster in fleet.clusters.worlds
        for versions in cluster.catalogue.packages.values()
        for candidate in versions
    }
    interface, equals, package = change.partition("=")
    if equals:
        return _default(interface, package, candidates)
    if removes:
        return _removal(change, candidates)
    name, at, version = change.rpartition("@")
    versions = _versions(name, candidates)
    if at and versions:
        candidate = _candidate(change, versions, version, manifest)
        is_published = not manifest and any(c.version == candidate.version for c in versions)
        return publish(candidate, is_published=is_published)
    keys = install_keys(inventory, fleet.desired, name) if at else {}
    if keys:
        return bump(name, keys, _revision(change, fleet, keys, version, manifest))
    if not at:
        _check_version_is_named(change, candidates, fleet, inventory)
    variants = (text for v in fleet.desired.variants for text in (v.key.name, str(v.key)))
    hint = suggest(name or change, (*_names(candidates), *variants), otherwise=_FORMS)
    raise UsageError(f"No package or PackageVariant is called {name or change}", hint=hint)


def _check_version_is_named(
    change: str, candidates: Iterable[Candidate], fleet: ResolvedFleet, inventory: Inventory
) -> None:
    """Refuse a package or PackageVariant of which no version is named.

    Raises:
        UsageError: The change is the name of one.
    """
    if _versions(change, candidates):
        hint = f"Write {change}@VERSION, or add --remove."
        raise UsageError(f"No version of {change} is named", hint=hint)
    if install_keys(inventory, fleet.desired, change):
        raise UsageError(f"No revision of PackageVariant {change} is named", hint=f"Write {change}@REVISION.")


def _names(candidates: Iterable[Candidate]) -> set[str]:
    return {name for c in candidates for name in (c.id.name, str(c.id), *c.names)}


def _versions(name: str, candidates: Iterable[Candidate]) -> list[Candidate]:
    return [c for c in candidates if name in (c.id.name, str(c.id), *c.names)]


def _default(interface: str, text: str, candidates: Collection[Candidate]) -> Hypothesis:
    package = parse_id(text)
    if package is None or not any(candidate.id == package for candidate in candidates):
        names = {str(candidate.id) for candidate in candidates}
        hint = suggest(text, names, otherwise="Write ECOSYSTEM:NAME as `reconciler index list` prints it.")
        raise UsageError(f"No package is called {text}", hint=hint)
    named = canonical_interface(interface)
    implemented = {each.id for candidate in candidates for each in candidate.interfaces}
    if named not in implemented:
        otherwise = "`reconciler index list -o json` names the interfaces of packages."
        hint = suggest(named, implemented, otherwise=otherwise)
        raise UsageError(f"No known package implements the interface {interface}", hint=hint)
    return change_default(named, package)


def _removal(change: str, candidates: Iterable[Candidate]) -> Hypothesis:
    everything = list(candidates)
    name, at, version = change.rpartition("@")
    versions = [c for c in _versions(name, everything) if str(c.version) == version] if at else []
    versions = versions or _versions(change, everything)
    if not versions:
        otherwise = "Write PACKAGE or PACKAGE@VERSION as `reconciler index list` prints them."
        others = _versions(name, everything) if at else []
        names = {f"{name}@{c.version}" for c in others} or _names(everything)
        hint = suggest(change if others else name or change, names, otherwise=otherwise)
        raise UsageError(f"No package or version is called {change}", hint=hint)
    is_version = at and change not in (versions[0].id.name, str(versions[0].id), *versions[0].names)
    return withdraw(versions[0].id, versions[0].version.text if is_version else "")


def _candidate(change: str, versions: list[Candidate], version: str, manifest: Path | None) -> Candidate:
    try:
        candidate = hypothetical_version(versions, version)
    except (VersionError, ValueError) as error:
        raise UsageError(
            f"{change} is not one version of one package: {error}",
            hint=f"Write {change.partition('@')[0]}@VERSION.",
        ) from error
    return _read(manifest, candidate) if manifest else candidate


def _revision(
    change: str,
    fleet: ResolvedFleet,
    keys: dict[str, frozenset[tuple[str, str]]],
    revision: str,
    manifest: Path | None,
) -> Candidate:
    """Return the upstream revision of a variant: a published one, else one that is imagined."""
    for world in fleet.clusters.worlds:
        for install in world.installs:
            if install.kind == VARIANT_KIND and (install.namespace, install.name) in keys.get(
                world.cluster, ()
            ):
                versions = list(world.catalogue.candidates(install.need.id))
                published = [c for c in versions if revision in (c.source, c.version.text)]
                number = revision.removeprefix("v")
                text = f"{number}.0.0" if number.isdigit() else number
                return published[0] if published else _candidate(change, versions, text, manifest)
    message = f"No revision of the upstream of {change.rpartition('@')[0]} declares dependencies"
    raise UsageError(message, hint="Nothing moves along with it: its package has no package.yaml.")


def _read(manifest: Path, like: Candidate) -> Candidate:
    parsed = parse_file(str(manifest), manifest.read_bytes(), yaml_limits(Limits()))
    objects = ((value, Source(place.location, marks=place)) for value, place in parsed.objects)
    reading = read_hypothetical([*objects] or [({}, Source(Location(str(manifest))))], like)
    wrong = [*(broken.problem for broken in parsed.broken), *reading.problems]
    if wrong or not reading.candidates:
        message = wrong[0].message if wrong else "It describes no package"
        hint = (wrong[0].hint if wrong else "") or "Write it like the manifests of versions below index/."
        raise UsageError(f"{wrong[0].location if wrong else manifest}: {message}", hint=hint)
    return reading.candidates[0]
