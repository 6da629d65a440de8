"""What a package brings: the kinds of its CRDs, those that its XRDs imply, and its compositions."""

from collections.abc import Iterable, Mapping
from typing import Any

from reconciler.dependencies.model import Gvk

_CRD, _XRD, _COMPOSITION = "CustomResourceDefinition", "CompositeResourceDefinition", "Composition"
_DEFINITION, _PUBLICATION = "InfrastructureDefinition", "InfrastructurePublication"
CONTENT = frozenset({_CRD, _XRD, _COMPOSITION, _DEFINITION, _PUBLICATION})
"""The kinds of objects that say what a package brings."""

_PUBLISHED_AS = "Requirement"


def crd_apis(crd: Mapping[str, Any]) -> tuple[Gvk, ...]:
    """Return the APIs that a CustomResourceDefinition serves, sorted; none if it is not one.

    Its plural name is among them, without a version, for requirements that name the CRD.
    """
    return _apis(crd.get("spec"), "names")


def kinds_of(objects: Iterable[Mapping[str, Any]]) -> frozenset[Gvk]:
    """Return the APIs of all CRDs that come to be with the objects of a package. Total; order-free.

    A CompositeResourceDefinition implies one CRD, and another one for its claims. The design's
    InfrastructureDefinition implies one too, and an InfrastructurePublication of it another.

    Source: crossplane, internal/xcrd, ForCompositeResource and ForCompositeResourceClaim.
    """
    several = list(objects)
    found: set[Gvk] = set()
    for one in several:
        spec, kind = one.get("spec"), one.get("kind")
        if kind in (_CRD, _XRD):
            found.update((*_apis(spec, "names"), *(_apis(spec, "claimNames") if kind == _XRD else ())))
        elif kind == _DEFINITION and isinstance(spec, Mapping):
            own = _apis(spec.get("crdSpecTemplate"), "names")
            found.update(own)
            if any(_publishes(other, one) for other in several):
                found.update(api._replace(kind=api.kind + _PUBLISHED_AS) for api in own if api.version)
    return frozenset(found)


def compositions_of(objects: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return the names of the Compositions among the objects of a package. Total; order-free."""
    found = (one.get("metadata") for one in objects if one.get("kind") == _COMPOSITION)
    return frozenset(str(meta["name"]) for meta in found if isinstance(meta, Mapping) and meta.get("name"))


def _publishes(publication: Mapping[str, Any], definition: Mapping[str, Any]) -> bool:
    spec, meta = publication.get("spec"), definition.get("metadata")
    named = spec.get("infrastructureDefinitionRef") if isinstance(spec, Mapping) else None
    if publication.get("kind") != _PUBLICATION or not (
        isinstance(named, Mapping) and isinstance(meta, Mapping)
    ):
        return False
    return named.get("name") == meta.get("name")


def _apis(spec: Any, key: str) -> tuple[Gvk, ...]:
    """Return the served APIs of one set of names; a single `version` counts as served."""
    names = spec.get(key) if isinstance(spec, Mapping) else None
    if not isinstance(names, Mapping):
        return ()
    listed = spec.get("versions")
    several = [v for v in listed if isinstance(v, Mapping)] if isinstance(listed, list) else []
    served = [str(v.get("name")) for v in several if v.get("served")]
    if not several and spec.get("version"):
        served = [str(spec["version"])]
    if not served:
        return ()
    group = str(spec.get("group", ""))
    own = [Gvk(group, version, str(names.get("kind", ""))) for version in served]
    return tuple(sorted([*own, Gvk(group, "", str(names.get("plural", "")))]))
