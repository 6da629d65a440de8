"""Edits of the inputs of a cluster, and the ranges to write for a version that should fit."""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from reconciler.dependencies.model.cluster import (
    Catalogue,
    ClusterInputs,
    Instance,
    ObservedInstallation,
    build_catalogue,
)
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
from reconciler.dependencies.solve.lookup import any_version
from reconciler.dependencies.versions import Grammar, Version, VersionError, parse_loose
from reconciler.dependencies.versions.lint import probe_versions

Edit = Callable[[ClusterInputs], ClusterInputs]


def with_all(edits: Iterable[Edit]) -> Edit:
    """Return the edit that applies several ones in turn."""
    kept = list(edits)

    def edit(inputs: ClusterInputs) -> ClusterInputs:
        for step in kept:
            inputs = step(inputs)
        return inputs

    return edit


def with_install(install: Install, **changes: Any) -> Edit:
    """Return the edit that changes fields of one install."""

    def edit(inputs: ClusterInputs) -> ClusterInputs:
        changed = (replace(i, **changes) if _is_same(i, install) else i for i in inputs.installs)
        return replace(inputs, installs=tuple(changed))

    return edit


def without_install(inputs: ClusterInputs, install: Install) -> ClusterInputs:
    """Return the inputs without one install."""
    return replace(inputs, installs=tuple(i for i in inputs.installs if not _is_same(i, install)))


def _is_same(first: Install, second: Install) -> bool:
    return (first.kind, first.namespace, first.name) == (second.kind, second.namespace, second.name)


def with_choices(**changes: Any) -> Edit:
    """Return the edit that changes resolver settings."""
    return lambda inputs: replace(inputs, choices=replace(inputs.choices, **changes))


def with_default(interface: str, package: PackageId) -> Edit:
    """Return the edit that makes a package the default of an interface."""

    def edit(inputs: ClusterInputs) -> ClusterInputs:
        defaults = {**dict(inputs.choices.defaults), interface: package}
        return with_choices(defaults=tuple(sorted(defaults.items())))(inputs)

    return edit


def with_candidate(candidate: Candidate) -> Edit:
    """Return the edit that publishes a version, or replaces a published one."""

    def edit(inputs: ClusterInputs) -> ClusterInputs:
        catalogue = inputs.catalogue
        versions = catalogue.candidates(candidate.id)
        others = (c for c in versions if c.version.text != candidate.version.text)
        own = build_catalogue([*others, candidate]).packages[candidate.id]
        packages = dict(sorted({**catalogue.packages, candidate.id: own}.items()))
        return replace(inputs, catalogue=Catalogue(packages, catalogue.names, catalogue.refused))

    return edit


def with_declared(maker: Candidate, parent: Instance) -> Edit:
    """Return the edit that declares a package with a manifest in the namespace of another one."""
    dialect = {Ecosystem.XPKG: Dialect.CROSSPLANE, Ecosystem.BUNDLE: Dialect.PORTER}.get(
        maker.id.ecosystem, Dialect.CARVEL
    )
    namespace = "" if dialect is Dialect.CROSSPLANE else parent.slot.namespace
    name = maker.id.name.rpartition("/")[2]
    install = Install(namespace, name, dialect, PackageNeed(maker.id, any_version(maker.id)), kind="Install")
    return lambda inputs: replace(inputs, installs=(*inputs.installs, install))


def with_adopted(there: list[ObservedInstallation], rest: tuple[ObservedInstallation, ...]) -> Edit:
    """Return the edit that declares installations of a snapshot with manifests; `rest` are the others."""

    def edit(inputs: ClusterInputs) -> ClusterInputs:
        presence = replace(inputs.presence, installations=rest)
        dialects = {Ecosystem.XPKG: Dialect.CROSSPLANE, Ecosystem.BUNDLE: Dialect.PORTER}
        declared = tuple(
            Install(
                item.namespace,
                item.name,
                dialects.get(item.id.ecosystem, Dialect.CARVEL),
                PackageNeed(item.id, any_version(item.id)),
                kind="Install",
            )
            for item in there
        )
        return replace(inputs, presence=presence, installs=(*inputs.installs, *declared))

    return edit


def exact_need(install: Install, chosen: Candidate) -> PackageNeed:
    """Return the need for exactly one version, as the dialect of an install writes it."""
    dialect = install.need.range.dialect
    text = _range_text(dialect, chosen)
    exact = f"={text}" if dialect.grammar is Grammar.MASTERMINDS else text
    return replace(install.need, range=version_range(dialect, exact))


def _range_text(dialect: Dialect, chosen: Candidate) -> str:
    """Return a version as ranges of a dialect have it: those of Carvel know no leading `v`."""
    text = str(chosen.version)
    return text if dialect.grammar is Grammar.MASTERMINDS else text.removeprefix("v")


def widened(need: PackageNeed, chosen: Candidate) -> PackageNeed | None:
    """Return a need with the shortest range that admits a version too; None if there is none."""
    old, dialect = need.range.text, need.range.dialect
    version = _range_text(dialect, chosen)
    separator = ", " if dialect.grammar is Grammar.MASTERMINDS else " "
    words = old.replace(",", " ").split()
    low = next((word for word in words if word.startswith(">")), "")
    high = next((word for word in words if word.startswith("<")), "")
    texts = [
        *([f"{low}{separator}<={version}"] if low and high and len(words) > 1 else []),
        *([f">={version}{separator}{high}"] if low and high and len(words) > 1 else []),
        *([f"<={version}"] if high and len(words) == 1 else []),
        *([f">={version}"] if low and len(words) == 1 else []),
        *([f"{old} || {version}"] if low or high else []),
        version,
    ]
    for text in texts:
        try:
            range_ = version_range(dialect, text, prereleases=need.range.prereleases)
        except VersionError:
            continue
        if range_.allows(chosen.version, chosen.digest):
            return replace(need, range=range_)
    return None


def version_in(range_: VersionRange) -> Version | None:
    """Return a version that a range admits."""
    probes = list(probe_versions(range_.constraint)) if range_.constraint else [parse_loose("1.0.0")]
    return next((probe for probe in reversed(probes) if range_.allows(probe)), None)
