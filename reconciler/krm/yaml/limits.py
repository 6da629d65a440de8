"""How large and how clever a YAML text may be before we refuse to look at it."""

from dataclasses import dataclass
from enum import StrEnum


class Aliases(StrEnum):
    """What to do with anchors and aliases."""

    REFUSE = "refuse"
    """Any anchor or alias is an error: manifests of Kubernetes objects never need one."""
    BOUNDED = "bounded"
    """Aliases are followed as long as the expanded document stays under `YamlLimits.max_nodes`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlLimits:
    """Bounds on one file. Sizes are in bytes; a node is one scalar, mapping or sequence.

    `max_nodes` bounds each document with its aliases expanded, so it also bounds how
    much an alias bomb may grow.
    """

    max_bytes: int
    max_documents: int
    max_nodes: int
    max_depth: int = 100
    aliases: Aliases = Aliases.REFUSE


_MIB = 1024 * 1024

MANIFEST_LIMITS = YamlLimits(max_bytes=16 * _MIB, max_documents=20_000, max_nodes=1_000_000)
"""Manifests that people write: anchors refused."""

SNAPSHOT_LIMITS = YamlLimits(max_bytes=512 * _MIB, max_documents=1_000_000, max_nodes=20_000_000)
"""Exports of cluster objects: many documents, anchors refused."""

PACKAGE_LIMITS = YamlLimits(
    max_bytes=16 * _MIB, max_documents=20_000, max_nodes=1_000_000, aliases=Aliases.BOUNDED
)
"""Files of packages: anchors are allowed and bounded."""
