"""Which document is which: the resources of one package, matched across its three sides."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from reconciler.krm.merge import Identity
from reconciler.render.update.chunks import Chunked, Document


class Placed(NamedTuple):
    """A document and the file that it stands in."""

    path: str
    document: Document


@dataclass(slots=True, eq=False)
class Triple:
    """One resource as the three sides have it; None where a side has it not."""

    base: Placed | None = None
    upstream: Placed | None = None
    local: Placed | None = None

    @property
    def identity(self) -> Identity:
        """The identity that the sides share, local's first."""
        placed = self.local or self.base or self.upstream
        assert placed is not None  # noqa: S101 - a triple is made of at least one side
        return placed.document.identity


@dataclass(slots=True)
class Matching:
    """All resources of a package; `duplicates` are the files in which one side has an identity twice."""

    triples: list[Triple] = field(default_factory=list)
    duplicates: tuple[str, ...] = ()


Side = Mapping[str, Chunked]


def match_resources(base: Side, upstream: Side, local: Side, *, follow_moves: bool) -> Matching:
    """Match resources by group, kind, name and file; then, if moves are followed, regardless of the file.

    Deterministic. Order: local's documents, then base's, then upstream's, by file and position.

    Source: kpt internal/util/merge/merge3.go, ResourceMergeMatcher.
    Differs: only with `follow_moves`, where kpt leaves two copies or loses updates.
    """
    found: dict[tuple[str, Identity, int], Triple] = {}
    duplicates: set[str] = set()
    for name, side in (("local", local), ("base", base), ("upstream", upstream)):
        for path in sorted(side):
            for document in side[path].documents:
                key = (path, document.identity, document.ordinal)
                setattr(found.setdefault(key, Triple()), name, Placed(path, document))
                if document.ordinal:
                    duplicates.add(path)
    triples = list(found.values())
    if follow_moves:
        triples = _follow(triples, lambda identity: identity)
        triples = _follow_namespaces(triples)
    return Matching(triples, tuple(sorted(duplicates)))


def _follow(triples: list[Triple], key: Callable[[Identity], Identity]) -> list[Triple]:
    """Join what one side moved to another file, where exactly one resource fits."""
    for side in ("upstream", "local"):
        other = "local" if side == "upstream" else "upstream"
        homeless = _unique(t for t in triples if t.base is not None and getattr(t, side) is None)
        strangers = _unique(t for t in triples if t.base is None and getattr(t, side) is not None)
        for identity, triple in homeless.items():
            stranger = strangers.get(key(identity))
            if stranger is None or (
                getattr(stranger, other) is not None and getattr(triple, other) is not None
            ):
                continue
            setattr(triple, side, getattr(stranger, side))
            if getattr(triple, other) is None:
                setattr(triple, other, getattr(stranger, other))
            triples = [t for t in triples if t is not stranger]
    return triples


def _follow_namespaces(triples: list[Triple]) -> list[Triple]:
    """Join a resource of the same file that only local put into another namespace, as mutators do."""
    homeless = [t for t in triples if t.base is not None and t.upstream is not None and t.local is None]
    strangers = [t for t in triples if t.base is None and t.upstream is None and t.local is not None]
    for triple in homeless:
        fits = [s for s in strangers if s.local is not None and _only_namespace_differs(triple, s.local)]
        if len(fits) == 1:
            triple.local = fits[0].local
            strangers.remove(fits[0])
            triples = [t for t in triples if t is not fits[0]]
    return triples


def _only_namespace_differs(triple: Triple, local: Placed) -> bool:
    base = triple.base
    if base is None or base.path != local.path or local.document.comment:
        return False
    one, other = base.document.identity, local.document.identity
    return bool(one.name) and one._replace(namespace="") == other._replace(namespace="")


def _unique(triples: Iterable[Triple]) -> dict[Identity, Triple]:
    """Return the named resources whose identity no other of these has."""
    found: dict[Identity, list[Triple]] = {}
    for triple in triples:
        if triple.identity.name:
            found.setdefault(triple.identity, []).append(triple)
    return {identity: same[0] for identity, same in found.items() if len(same) == 1}
