"""Identity: tuples and closed words, spelled as the field spells them."""

from enum import StrEnum
from typing import NamedTuple, NewType

Oid = NewType("Oid", str)
"""A Git object id: 40 lower-case hexadecimal digits, never abbreviated."""


class Lifecycle(StrEnum):
    """Lifecycle of a package revision, as Porch spells it."""

    DRAFT = "Draft"
    PROPOSED = "Proposed"
    PUBLISHED = "Published"
    DELETION_PROPOSED = "DeletionProposed"


class ObjectName(NamedTuple):
    """A namespaced name, the identity of one object of a known kind."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class GroupKind(NamedTuple):
    """A kind regardless of version; the core group is the empty string."""

    group: str
    kind: str

    def __str__(self) -> str:
        return f"{self.kind}.{self.group}" if self.group else self.kind


class ObjectKey(NamedTuple):
    """Identity of one object of any kind; cluster-scoped ones have an empty namespace."""

    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{GroupKind(self.group, self.kind)} {where}"


class PackageKey(NamedTuple):
    """Where a package stands: the repository's normalised URL and the full path F in it.

    Two Repository objects may view one place (D19), so neither is part of the identity.
    """

    url: str
    path: str

    def __str__(self) -> str:
        return f"{self.url}//{self.path}"


def group_of(api_version: str) -> str:
    """Return the API group of an apiVersion; the core group is the empty string."""
    group, slash, _ = api_version.rpartition("/")
    return group if slash else ""
