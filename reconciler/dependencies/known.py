"""What resolution looks at beside the manifests, read once before it: published packages and locks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from reconciler.dependencies.model import Candidate
from reconciler.errors import Problem
from reconciler.ids import Oid, PackageKey


class PackageTree(NamedTuple):
    """One content of one kpt package: what a variant may be pinned to, tagged or not."""

    package: PackageKey
    tree: Oid


@dataclass(frozen=True, slots=True)
class Published:
    """Versions of kpt packages that say what they need.

    `candidates` may be chosen for whoever needs them. `revisions` are those that a variant may be
    pinned to besides: also drafts, branches, and tagged ones that say nothing; a package of which no
    revision says anything is not among them. A published revision cannot be corrected, so what is
    wrong with one is a warning, and it is neither.
    """

    candidates: tuple[Candidate, ...] = ()
    revisions: Mapping[PackageTree, Candidate] = field(default_factory=dict)
    warnings: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Known:
    """All that `read` adds for resolution; `locks` are files of the state branch."""

    published: Published = Published()
    locks: Mapping[str, bytes] = field(default_factory=dict)
