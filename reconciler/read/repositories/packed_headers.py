"""Headers of Kptfiles as cache files hold them: each upstream once, for a fleet has few."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from reconciler.api.kptfile import GitUpstream, KptfileHeader

Upstreams = dict[GitUpstream, GitUpstream]
"""Upstreams that headers share, each by itself."""


class PackedHeader(NamedTuple):
    """A header with its upstreams as numbers of `PackedHeaders.upstreams`, -1 for none."""

    owner: str
    location: str
    upstream: int
    lock: int
    error: str


class PackedHeaders(NamedTuple):
    """Headers in the order in which they were packed, and the distinct upstreams that they name."""

    upstreams: list[GitUpstream]
    headers: list[PackedHeader]

    @property
    def is_whole(self) -> bool:
        """Whether every upstream that a header names is there; a damaged file may lack one."""
        numbers = range(-1, len(self.upstreams))
        return all(each.upstream in numbers and each.lock in numbers for each in self.headers)


def pack_headers(headers: Sequence[KptfileHeader]) -> PackedHeaders:
    """Return headers as a cache file holds them, in their order."""
    distinct = [*dict.fromkeys(u for h in headers for u in (h.upstream, h.upstream_lock) if u is not None)]
    place: dict[GitUpstream | None, int] = {None: -1, **{each: n for n, each in enumerate(distinct)}}
    return PackedHeaders(
        distinct,
        [
            PackedHeader(h.owner, h.location, place[h.upstream], place[h.upstream_lock], h.error)
            for h in headers
        ],
    )


def unpack_headers(packed: PackedHeaders, shared: Upstreams) -> Iterable[KptfileHeader]:
    """Yield headers in their order; equal upstreams are one object, also with those of `shared`."""
    upstreams = [*(shared.setdefault(each, each) for each in packed.upstreams), None]
    for owner, location, upstream, lock, error in packed.headers:
        yield KptfileHeader(owner, location, upstreams[upstream], upstreams[lock], error)
