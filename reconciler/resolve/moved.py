"""Numbered tags that their author moved: reported, and followed only where a person says so (D9)."""

from collections.abc import Iterable

from reconciler.api.kptfile import KptfileHeader
from reconciler.expand.variants import DesiredVariant
from reconciler.ids import normalise_url
from reconciler.resolve.resolution import Pin

FOLLOW = "reconciler.dev/follow-moved-tag"
"""On a variant: the commit, or at least seven digits of it, to which its numbered upstream tag may move."""

_SHORTEST = 7


def find_moved_tag(headers: Iterable[KptfileHeader | None], pin: Pin, variant: DesiredVariant) -> str:
    """Return how the pinned tag moved since the package was made from it, empty if it did not.

    A published number promises one content for good; a floating tag promises nothing. The first of
    `headers` whose upstreamLock has the pin's very ref tells, the draft's before main's. Moved is
    what that lock contradicts, unless the variant names the new commit.
    """
    if pin.revision <= 0:
        return ""
    for header in headers:
        lock = header.upstream_lock if header else None
        if lock is None or lock.ref != pin.ref or normalise_url(lock.repo) not in _names(pin):
            continue
        if not lock.commit or lock.commit == pin.commit.oid or _follows(variant, pin):
            return ""
        moved = f"Tag {pin.ref} of {pin.repository} moved from commit {lock.commit} to {pin.commit.oid}"
        return f"{moved}; to follow it, annotate the variant with {FOLLOW}: {pin.commit.oid}"
    return ""


def _follows(variant: DesiredVariant, pin: Pin) -> bool:
    consent = variant.annotations.get(FOLLOW, "").strip()
    return len(consent) >= _SHORTEST and pin.commit.oid.startswith(consent)


def _names(pin: Pin) -> set[str]:
    return {pin.package.url, normalise_url(pin.remote), normalise_url(pin.repo)}
