"""The digest of what the resolution of a cluster depends on: the hash of its encoded inputs."""

import hashlib
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from reconciler.base.values import PartlyCompared, reachable
from reconciler.dependencies.lock.format import SOLVER
from reconciler.dependencies.model.cluster import Catalogue, ClusterInputs
from reconciler.dependencies.model.packages import Candidate, Install, PackageId, PackageNeed
from reconciler.dependencies.versions import Version

DIGEST_VERSION = 4
"""To be raised when a default of a model changes: every lock is resolved once more then.

What has its default is not encoded, so that a new field changes no digest; but then inputs with the former
default and with the new one would have one digest.
"""


class InputDigests:
    """Digests of the inputs of clusters; what the clusters of one run share is encoded once."""

    def __init__(self) -> None:
        self._encoded: dict[Install | Candidate, str] = {}
        self._packages: dict[tuple[int, PackageId], tuple[str, frozenset[PackageId]]] = {}
        self._reachable: dict[tuple[int, frozenset[PackageId]], tuple[Catalogue, str]] = {}

    def of(self, inputs: ClusterInputs) -> str:
        """Return the SHA-256 of what a resolution depends on, apart from lock and cluster name.

        Of the catalogue only what can be reached by name from the installs counts, so that a new version of
        one package touches only the clusters that can use it. Order-free; places do not matter.
        """
        facts = {
            "version": DIGEST_VERSION,
            "solver": SOLVER,
            "installs": sorted(map(self._text, inputs.installs)),
            "cluster": encodable(inputs.presence),
            "settings": encodable(inputs.choices),
            "activations": sorted(map(_encoded, inputs.activations)),
            "catalogue": self._catalogue(inputs),
        }
        return f"sha256:{hashlib.sha256(_encoded(facts).encode()).hexdigest()}"

    def _catalogue(self, inputs: ClusterInputs) -> str:
        catalogue = inputs.catalogue
        roots = frozenset(
            [
                *(catalogue.find(install.need.id) for install in inputs.installs),
                *(catalogue.find(id_) for _, id_ in inputs.choices.defaults),
                *(catalogue.packages if inputs.choices.discovery else ()),
            ]
        )
        key = (id(catalogue), roots)
        if key not in self._reachable:
            needed = reachable(roots, lambda id_: self._package(catalogue, id_)[1])
            texts = (self._package(catalogue, id_)[0] for id_ in sorted(needed))
            joined = "\n".join(filter(None, texts))
            # The catalogue is held, or another one could get its id.
            self._reachable[key] = catalogue, hashlib.sha256(joined.encode()).hexdigest()
        return self._reachable[key][1]

    def _package(self, catalogue: Catalogue, id_: PackageId) -> tuple[str, frozenset[PackageId]]:
        """Return the versions of a package as text, and the packages that they can need."""
        key = (id(catalogue), id_)
        if key not in self._packages:
            candidates = catalogue.everywhere(id_)
            requirements = [requirement for candidate in candidates for requirement in candidate.requires]
            needs = (need for r in requirements for need in (*r.alternatives, r.default))
            needed = frozenset(catalogue.find(need.id) for need in needs if isinstance(need, PackageNeed))
            self._packages[key] = "\n".join(map(self._text, candidates)), needed
        return self._packages[key]

    def _text(self, value: Install | Candidate) -> str:
        if value not in self._encoded:
            self._encoded[value] = _encoded(value)
        return self._encoded[value]


def _encoded(value: Any) -> str:
    return msgspec.json.encode(encodable(value), order="deterministic").decode()


def encodable(value: Any) -> Any:
    """Return a value as plain data, without what is not compared or has its default; sets are sorted.

    Values of one type have equal data if and only if they are equal.
    """
    if isinstance(value, Struct):
        parts = ((name, getattr(value, name), default) for name, default in compared_fields(type(value)))
        return {name: encodable(part) for name, part, default in parts if part != default}
    if isinstance(value, frozenset):
        return sorted(map(encodable, value))
    if isinstance(value, tuple | list):
        return list(map(encodable, value))
    return str(value) if isinstance(value, Version) else value


@cache
def compared_fields(kind: type[Struct]) -> tuple[tuple[str, Any], ...]:
    """Return the compared fields of a model, each with its default."""
    uncompared = kind.UNCOMPARED if issubclass(kind, PartlyCompared) else ()
    return tuple((f.name, f.default) for f in msgspec.structs.fields(kind) if f.name not in uncompared)
