"""Limits of YAML and JSON texts, and the error for texts that are refused."""

from enum import StrEnum

from msgspec import Struct


class YamlError(ValueError):
    """A text that is not acceptable YAML or JSON; callers report it as a Problem of the file.

    `line` and `column` count from 1; 0 is unknown. `message` is one sentence without a trailing
    stop; `hint` is the next step and may be empty.
    """

    def __init__(self, message: str, *, line: int = 0, column: int = 0, hint: str = "") -> None:
        where = f"line {line}, column {column}: " if line else ""
        super().__init__(f"{where}{message}")
        self.message = message
        self.line = line
        self.column = column
        self.hint = hint


class Aliases(StrEnum):
    """Policy for anchors and aliases."""

    REFUSE = "refuse"
    """Every anchor or alias is an error: manifests of Kubernetes objects never need one."""
    BOUNDED = "bounded"
    """Aliases are followed as long as the expanded document stays under `YamlLimits.max_nodes`."""


class YamlLimits(Struct, frozen=True, kw_only=True):
    """Bounds on one file. Sizes are in bytes; a node is one scalar, mapping or sequence.

    `max_nodes` bounds each document with its aliases expanded, so it also bounds the growth of an
    alias bomb.
    """

    max_bytes: int
    max_documents: int
    max_nodes: int
    max_depth: int = 100
    aliases: Aliases = Aliases.REFUSE


_MIB = 1024 * 1024
MANIFEST_LIMITS = YamlLimits(max_bytes=16 * _MIB, max_documents=20_000, max_nodes=1_000_000)
"""Limits of manifests: anchors are refused."""
SNAPSHOT_LIMITS = YamlLimits(max_bytes=512 * _MIB, max_documents=1_000_000, max_nodes=20_000_000)
"""Limits of exported cluster objects: many documents, anchors are refused."""
PACKAGE_LIMITS = YamlLimits(
    max_bytes=16 * _MIB, max_documents=20_000, max_nodes=1_000_000, aliases=Aliases.BOUNDED
)
"""Limits of package files: anchors are allowed and bounded."""
KPTFILE_LIMITS = YamlLimits(max_bytes=_MIB, max_documents=100, max_nodes=100_000, aliases=Aliases.BOUNDED)
"""Limits of Kptfiles, which every run reads, checks and edits: one value takes about 700 bytes of memory."""
