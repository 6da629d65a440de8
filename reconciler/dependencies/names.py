"""Names and closed words of every dialect: ecosystems, packages, APIs, platforms."""

import re
from dataclasses import fields
from enum import StrEnum
from typing import Any, NamedTuple

from reconciler.dependencies.versions import Grammar
from reconciler.ids import GroupKind

Pairs = tuple[tuple[str, str], ...]
"""A small map as a sorted tuple, so that it can be part of an identity."""


def hash_of(value: Any) -> int:
    """Return the hash of a dataclass from its compared fields, to be kept: a fleet compares many."""
    kind = type(value)
    if kind not in _COMPARED:
        _COMPARED[kind] = tuple(one.name for one in fields(kind) if one.compare)
    return hash(tuple(getattr(value, name) for name in _COMPARED[kind]))


_COMPARED: dict[type, tuple[str, ...]] = {}


class Dialect(StrEnum):
    """Whose manifests a requirement was written in; it decides how versions are read and compared."""

    __hash__ = str.__hash__  # an enum hashes its name in Python, and identities hash often

    CROSSPLANE = "crossplane"
    CARVEL = "carvel"
    PORTER = "porter"
    KPT = "kpt"

    @property
    def grammar(self) -> Grammar:
        """The constraint grammar of this dialect; kpt packages declare needs in Carvel's words."""
        masterminds = self in (Dialect.CROSSPLANE, Dialect.PORTER)
        return Grammar.MASTERMINDS if masterminds else Grammar.CARVEL


class Ecosystem(StrEnum):
    """Where names of packages come from; no two ecosystems share a name."""

    __hash__ = str.__hash__  # an enum hashes its name in Python, and identities hash often

    XPKG = "xpkg"
    CARVEL = "carvel"
    BUNDLE = "bundle"
    KPT = "kpt"


class PackageId(NamedTuple):
    """A package regardless of version."""

    ecosystem: Ecosystem
    name: str

    def __str__(self) -> str:
        return f"{self.ecosystem}:{self.name}"


class Gvk(NamedTuple):
    """One served API."""

    group: str
    version: str
    kind: str

    def __str__(self) -> str:
        return f"{'/'.join(part for part in (self.group, self.version) if part)}/{self.kind}"

    @property
    def group_kind(self) -> GroupKind:
        """What a single CustomResourceDefinition owns, in all of its versions."""
        return GroupKind(self.group, self.kind)


LABEL_LENGTH = 63
"""The most bytes of a DNS label."""


def dns_label(image: str) -> str:
    """Return the name that Crossplane's package manager gives a dependency: its path in the registry.

    Source: crossplane internal/xpkg, ToDNSLabel.
    """
    _, slash, path = image.partition("/")
    found = re.sub(r"[^a-z0-9]+", "-", (path if slash else image).lower()).strip("-")
    return found[:LABEL_LENGTH].strip("-")


class Platform(StrEnum):
    """What every package of a cluster stands on."""

    KUBERNETES = "kubernetes"
    CROSSPLANE = "crossplane"
    KAPP_CONTROLLER = "kapp-controller"


class InstallationType(StrEnum):
    """How often a package may stand in one cluster, as Carvel spells it."""

    ONE_PER_CLUSTER = "onePerCluster"
    ONE_PER_NAMESPACE = "onePerNamespace"
    NO_RESTRICTIONS = "noRestrictions"
