"""Sub-packages with an upstream of their own, at the revisions that a variant sets for them."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from reconciler.api.kptfile import GitUpstream, KptfileHeader
from reconciler.api.porch import Upstream
from reconciler.base.reasons import Reason
from reconciler.base.suggestions import suggest
from reconciler.base.text import Text
from reconciler.expand.variants import DesiredVariant
from reconciler.inventory.inventory import Inventory, RepositoryView
from reconciler.names.ids import Oid, normalise_url
from reconciler.names.problems import Problem
from reconciler.names.refs import is_within
from reconciler.resolve.merge_bases import Sources, find_base, source_names
from reconciler.resolve.ownership import package_name
from reconciler.resolve.resolution import Pin, SubpackagePin
from reconciler.resolve.upstreams import find_upstream

SUBPACKAGE_REVISIONS: Final = "reconciler.dev/subpackage-revisions"
"""Annotation of a variant: `DIR: REVISION` for each sub-package that has a revision of its own."""
_ENTRY: Final = re.compile(r"([^:;\s]+)\s*:\s*([^:;\s]+)")


class SubpackageRevision(Struct, frozen=True):
    """One entry of the annotation: a directory, a revision, and where they start in its text."""

    directory: str
    revision: str
    offset: int


def parse_entries(annotations: Mapping[str, str]) -> tuple[SubpackageRevision, ...]:
    """Return the entries of the annotation; those of directories above others are first."""
    text = annotations.get(SUBPACKAGE_REVISIONS, "")
    entries = (SubpackageRevision(m[1].strip("/"), m[2], m.start()) for m in _ENTRY.finditer(text))
    return tuple(sorted(entries, key=lambda entry: (entry.directory, entry.offset)))


def pin_subpackages(
    variant: DesiredVariant, trees: Iterable[Oid | None], inventory: Inventory, sources: Sources
) -> tuple[SubpackagePin, ...] | Problem:
    """Return the pins of the sub-packages that the variant sets, or the first problem.

    `trees` are the package on main and in its draft, and its upstreams; a sub-package has the upstream that
    it has in the first of them.
    """
    headers = [inventory.subpackages.get(tree, {}) for tree in trees if tree is not None]
    pins: list[SubpackagePin] = []
    for entry in parse_entries(variant.annotations):
        if any(pin.directory == entry.directory for pin in pins):
            message = f"{entry.directory} has more than one revision"
            return _problem(variant, entry, Reason.INVALID_ANNOTATION, message, "Leave one of them.")
        present = [header[entry.directory] for header in headers if entry.directory in header]
        upstream = present[0].upstream if present else None
        if upstream is None:
            return _unknown(variant, entry, headers, is_there=bool(present))
        pin = _find_pin(variant, entry, upstream, inventory, sources)
        if isinstance(pin, Problem):
            return pin
        bases = {base for nested in present if (base := find_base(nested, pin, None, inventory, sources)[0])}
        pins.append(SubpackagePin(entry.directory, pin, tuple(sorted(bases, key=lambda b: b.commit.oid))))
    return tuple(pins)


def _unknown(
    variant: DesiredVariant,
    entry: SubpackageRevision,
    headers: Iterable[Mapping[str, KptfileHeader]],
    *,
    is_there: bool,
) -> Problem:
    names = sorted({name for header in headers for name, nested in header.items() if nested.upstream})
    what = f"has no upstream of its own in {entry.directory}" if is_there else f"has no {entry.directory}"
    listed = (
        f"Sub-packages with an upstream: {', '.join(names)}." if names else "It has none with an upstream."
    )
    hint = suggest(entry.directory, names, otherwise=listed, most=1)
    return _problem(variant, entry, Reason.INVALID_ANNOTATION, f"The package {what}", hint)


def _problem(
    variant: DesiredVariant, entry: SubpackageRevision, reason: Reason, message: Text, hint: Text
) -> Problem:
    where = variant.source.inside(entry.offset, "metadata", "annotations", SUBPACKAGE_REVISIONS)
    return Problem(where, reason, f"{SUBPACKAGE_REVISIONS}: {message}", hint).owned_by(variant.owner)


def _find_pin(
    variant: DesiredVariant,
    entry: SubpackageRevision,
    upstream: GitUpstream,
    inventory: Inventory,
    sources: Sources,
) -> Pin | Problem:
    """Return the pin of a sub-package, as a variant of that upstream would have it."""
    views = list(find_sources(upstream, sources, variant.key.namespace))
    if not views:
        return _unregistered(variant, entry, upstream, inventory)
    view, path = next((source for source in views if source[0].upstream_at(source[1])), views[0])
    number = re.fullmatch(r"v?([1-9][0-9]*)", entry.revision)
    selector = {"revision": int(number[1])} if number else {"tag": entry.revision}
    selected = Upstream(repo=view.key.name, package=package_name(view, path) or ".", **selector)
    spec = variant.spec.model_copy(update={"upstream": selected})
    pin = find_upstream(replace(variant, spec=spec), inventory)
    if isinstance(pin, Problem):
        return _problem(variant, entry, Reason(pin.reason), f"{entry.directory}: {pin.message}", pin.hint)
    return pin


def _unregistered(
    variant: DesiredVariant, entry: SubpackageRevision, upstream: GitUpstream, inventory: Inventory
) -> Problem:
    url, namespace = normalise_url(upstream.repo), variant.key.namespace
    same = (v for v in inventory.repositories.values() if url in source_names(v))
    view = next((candidate for candidate in same if candidate.key.namespace == namespace), None)
    if view is not None and view.problem is not None:
        reason, hint = Reason.REPOSITORY_UNAVAILABLE, view.problem.hint
        return _problem(variant, entry, reason, f"{entry.directory}: {view.unread_message}", hint)
    message = f"{entry.directory} is from {upstream.repo}, which is no registered repository"
    hint = f"Register it as a Repository object in namespace {namespace}."
    return _problem(variant, entry, Reason.REPOSITORY_NOT_FOUND, message, hint)


def find_sources(
    upstream: GitUpstream, sources: Sources, namespace: str = ""
) -> Iterator[tuple[RepositoryView, str]]:
    """Yield the views that may have an upstream, with its path there; those of its directory are first."""
    directory = upstream.directory.strip("/")
    views = sources.get(normalise_url(upstream.repo), ())
    places = [
        (view, path)
        for view in views
        if view.key.namespace == (namespace or view.key.namespace)
        for path in dict.fromkeys((directory, view.full_path(directory)))
    ]
    yield from sorted(places, key=lambda place: not is_within(place[1], place[0].directory))
